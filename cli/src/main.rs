//! `redis-lock`: a lock of the module's around a command, and a look at the locks there are.
//!
//! A file for each subcommand. [`args`] puts their options together. What several need: [`connect`] (the servers), [`values`] (of options), [`output`], [`key`] (the lock that is named), [`shown`] (names of any bytes on a
//! terminal), [`report`] (what is known of a lock), [`failure`] (how it ends). `run` has its own: [`answers`] (whether enough servers are there),
//! [`held`] (the lock, on one server or several), [`child`] (the command's process group), [`descendants`] (all that it
//! started), [`terminal`] (whose keyboard it is), [`signals`], [`watch`], [`sweep`] (the end of what it left behind);
//! and `top`: [`sample`] (what the server says), [`screen`] (how it looks).
#![cfg_attr(test, allow(clippy::expect_used))]

mod answers;
mod args;
mod break_lock;
mod child;
mod connect;
mod descendants;
mod failure;
mod held;
mod info;
mod key;
mod ls;
mod output;
mod pages;
mod report;
mod run;
mod sample;
mod screen;
mod shown;
mod signals;
mod sweep;
mod terminal;
mod top;
mod values;
mod watch;

use args::{Args, Subcommand};
use clap::CommandFactory;
use failure::{exit, Failure};

fn main() {
    if let Some(failure) = child::become_command() {
        exit(failure.tell());
    }
    let args = Args::of_words(std::env::args_os().collect()).unwrap_or_else(|error| {
        let _ = error.print();
        exit(if error.use_stderr() {
            failure::USAGE
        } else {
            0
        })
    });
    let status = runtime().and_then(|runtime| runtime.block_on(run(args)));
    exit(status.unwrap_or_else(|failure| failure.tell()));
}

async fn run(args: Args) -> Result<i32, Failure> {
    match args.subcommand {
        Subcommand::Run(args) => run::run(args).await,
        Subcommand::Ls(args) => ls::run(args).await,
        Subcommand::Info(args) => info::run(args).await,
        Subcommand::Break(args) => break_lock::run(args).await,
        Subcommand::Top(args) => top::run(args).await,
        Subcommand::Completions(args) => pages::completions(&args, Args::command()),
        Subcommand::Man => pages::manual(Args::command()),
    }
}

/// One thread: the parent of the command is the program itself, and not one of its threads.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build();
    runtime.map_err(|error| Failure::new(failure::OS, error))
}
