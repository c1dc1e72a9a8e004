//! `redis-lock`: runs a command under a lock of the module, lists the locks and shows their state.
//!
//! Each subcommand has a file or a folder; [`cli`] combines their options. Shared parts: [`servers`] (the options that
//! name servers), [`values`] (of options), [`key`] (the named lock), [`output`], [`escape`] (names of any bytes on a
//! terminal), [`report`] (a lock as text and JSON), [`graph`] (which owner waits for which), [`failure`] (messages and
//! exit statuses), [`signals`], [`os`] (the unsafe code).
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::indexing_slicing))]

mod break_lock;
mod check;
mod cli;
mod complete;
mod config;
mod escape;
mod failure;
mod graph;
mod info;
mod key;
mod leader;
mod ls;
mod os;
mod output;
mod pages;
mod report;
mod run;
mod servers;
mod signals;
mod steps;
mod top;
mod values;
mod watch;

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::process::exit;

use clap::CommandFactory;
use cli::{Args, Subcommand};
use failure::Failure;

fn main() {
    os::unblock_signals();
    let words = std::env::args_os().collect();
    os::hide_passwords();
    let args = Args::of_words(words).unwrap_or_else(|error| {
        let printed = error.print();
        exit(match printed {
            _ if error.use_stderr() => failure::USAGE,
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Failure::from(error).tell(),
            _ => output::must_be_open().map_or_else(|failure| failure.tell(), |()| 0),
        })
    });
    exit(begin(args).unwrap_or_else(|failure| failure.tell()));
}

fn begin(args: Args) -> Result<i32, Failure> {
    let starter = match &args.subcommand {
        Subcommand::Acquire(args) if args.hold_while.is_some() => Some(os::go_to_background()),
        _ => None,
    };
    runtime()?.block_on(run(args, starter.transpose()?))
}

async fn run(args: Args, starter: Option<os::Starter>) -> Result<i32, Failure> {
    match args.subcommand {
        Subcommand::Run(args) => run::run(args).await,
        Subcommand::Acquire(args) => steps::acquire(args, starter).await,
        Subcommand::Renew(args) => steps::renew(args).await,
        Subcommand::Release(args) => steps::release(args).await,
        Subcommand::Ls(args) => ls::run(args).await,
        Subcommand::Info(args) => info::run(args).await,
        Subcommand::Leader(args) => leader::run(args).await,
        Subcommand::Break(args) => break_lock::run(args).await,
        Subcommand::Top(args) => top::run(args).await,
        Subcommand::Watch(args) => watch::run(args).await,
        Subcommand::Check(args) => check::run(args).await,
        Subcommand::Completions(args) => complete::completions(&args),
        Subcommand::Complete(args) => complete::run(args, Args::command()).await,
        Subcommand::Man => pages::manual(Args::command()),
    }
}

/// The sockets that a subcommand needs at least, in pairs: the runtime panics where its own cannot be opened.
const PAIRS: usize = 6;

/// One thread: `--die-with-parent` follows the thread that started the command, which must be the main one.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    let room: io::Result<Vec<_>> = (0..PAIRS).map(|_| UnixStream::pair()).collect();
    drop(room?);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build()
}
