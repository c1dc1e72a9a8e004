//! `redis-lock top`: a live view of the locks of a server.

mod sample;
mod screen;

use std::env::var_os;
use std::io::{self, stdout, IsTerminal};
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::terminal::{
    self, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{cursor, execute};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::getpgrp;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};
use tokio::time::{sleep, timeout};

use crate::escape::{is_not_utf8, json};
use crate::failure::{Failure, BY_SIGNAL};
use crate::output::print;
use crate::servers::Connect;
use crate::signals::{is_end, Signals};
use crate::top::sample::{Order, Sampler};
use crate::top::screen::{Body, Screen};
use crate::values::seconds;
use crate::watch;

/// The waiters of a lock that the graph is made of.
const QUEUE: u64 = 100;
/// The longest time until the signal of Ctrl-Z has stopped the process. What it is stopped counts, too.
const STOP: Duration = Duration::from_millis(250);
/// The shortest time between two objects of `--json`.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// Watch the locks of a server
///
/// Shows the locks that are held and waited for, the longest waits first, with their holders and the rate of hand-offs.
/// The keys: q ends it, ? lists the others (order, filter, scroll, graph of waits).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The time from one sample to the next.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// One frame as plain text, and no more; also where the output is no terminal, or one without a cursor (TERM=dumb).
    #[arg(long)]
    once: bool,

    /// A JSON object per sample, at each interval; with --once a single one. Ctrl-C ends it with 0.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connect: Connect,
}

pub async fn run(args: Args) -> Result<i32, Failure> {
    let server = args.connect.open_one()?;
    let name = server.name().to_string();
    let mut sampler = Sampler::new(server);
    // An unreachable server is reported before the terminal is switched.
    let first = sampler.take(false).await?;
    if args.json {
        return objects(&args, &name, sampler).await;
    }
    let mut screen = Screen {
        server: name,
        sample: first,
        is_ascii: is_not_utf8(),
        ..Screen::default()
    };
    let is_dumb = var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
    if args.once || is_dumb || !stdout().is_terminal() || !io::stdin().is_terminal() {
        // The rates are those of one interval.
        sleep(args.interval).await;
        screen.update(sampler.take(true).await?);
        print(screen.text(usize::MAX))?;
        return Ok(0);
    }
    let signals = Signals::listen()?;
    live(&args, screen, sampler, signals).await
}

/// The samples as JSON. A failure after the first sample is an object, too.
async fn objects(args: &Args, name: &str, mut sampler: Sampler) -> Result<i32, Failure> {
    let mut signals = Signals::listen()?;
    loop {
        let look = async {
            sleep(args.interval.max(SHORTEST_INTERVAL)).await;
            sampler.take(args.once).await
        };
        let sample = tokio::select! {
            sample = look => sample,
            signal = signals.next_fatal() => return Ok(watch::status(signal)),
        };
        let object = match sample {
            Ok(mut sample) => {
                sample.sort(Order::Wait);
                sample.json(name)
            }
            Err(failure) if args.once => return Err(failure),
            Err(failure) => sample::failed_json(name, &failure),
        };
        print([json(&object)])?;
        if args.once {
            return Ok(0);
        }
    }
}

/// The terminal while the keyboard and the screen are those of `top`.
struct Switched;

impl Switched {
    fn on() -> io::Result<Switched> {
        terminal::enable_raw_mode()?;
        let switched = Switched;
        // A terminal may count the columns of a character in another way.
        execute!(
            stdout(),
            EnterAlternateScreen,
            DisableLineWrap,
            cursor::Hide
        )?;
        Ok(switched)
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let _ = execute!(stdout(), EnableLineWrap, LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

async fn live(
    args: &Args,
    mut screen: Screen,
    mut sampler: Sampler,
    mut signals: Signals,
) -> Result<i32, Failure> {
    let mut keys = keys()?;
    let mut switched = Switched::on()?;
    loop {
        let (columns, rows) = terminal::size()?;
        screen.draw(columns, rows)?;
        // The queues are read for the graph only, which has to wait for the first.
        let waiters = if screen.body == Body::Graph { QUEUE } else { 0 };
        let pause = match waiters == std::mem::replace(&mut sampler.waiters, waiters) {
            true => args.interval,
            false => Duration::ZERO,
        };
        let look = async {
            sleep(pause).await;
            sampler.take(false).await
        };
        tokio::select! {
            sample = look => match sample {
                Ok(sample) => {
                    screen.update(sample);
                    screen.trouble = None;
                }
                Err(failure) => screen.trouble = Some(failure.to_string()),
            },
            event = keys.recv() => match event {
                Some(Event::Key(key)) if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    match key.code {
                        KeyCode::Char('c') => return Ok(0),
                        KeyCode::Char('z') => {
                            drop(switched);
                            let _ = killpg(getpgrp(), Signal::SIGTSTP);
                            // It does not stop where no shell could continue it.
                            let continued = timeout(STOP, signals.next()).await;
                            if let Some(signal) = continued.ok().filter(|signal| is_end(*signal)) {
                                return Ok(BY_SIGNAL + signal as i32);
                            }
                            switched = Switched::on()?;
                        }
                        _ => {}
                    }
                }
                Some(Event::Key(key)) if screen.is_typing => typed(&mut screen, key.code),
                Some(Event::Key(key)) if pressed(&mut screen, key.code, rows.into()) => {}
                Some(Event::Key(_)) | None => return Ok(0),
                Some(_) => {}
            },
            signal = signals.next() => match signal {
                Signal::SIGWINCH => {}
                // It was stopped by a signal: the terminal was the shell's meanwhile.
                Signal::SIGCONT => {
                    drop(switched);
                    switched = Switched::on()?;
                }
                signal => return Ok(BY_SIGNAL + signal as i32),
            },
        }
    }
}

/// A key while the filter is typed.
fn typed(screen: &mut Screen, key: KeyCode) {
    match key {
        KeyCode::Char(char) => screen.filter.push(char),
        KeyCode::Backspace => drop(screen.filter.pop()),
        KeyCode::Enter => screen.is_typing = false,
        KeyCode::Esc => {
            screen.filter.clear();
            screen.is_typing = false;
        }
        _ => {}
    }
    screen.skipped = 0;
}

/// Another key. False when it ends the program.
fn pressed(screen: &mut Screen, key: KeyCode, rows: usize) -> bool {
    let page = rows.saturating_sub(screen::AROUND + 1).max(1);
    match key {
        KeyCode::Char('q') => return false,
        KeyCode::Esc if screen.body == Body::Help => screen.toggle(Body::Help),
        KeyCode::Esc if screen.filter.is_empty() => return false,
        KeyCode::Esc => screen.filter.clear(),
        KeyCode::Char('?') => screen.toggle(Body::Help),
        KeyCode::Char('g') => screen.toggle(Body::Graph),
        KeyCode::Char('/') => screen.is_typing = true,
        KeyCode::Char('w') => screen.order = Order::Wait,
        KeyCode::Char('h') => screen.order = Order::Held,
        KeyCode::Char('n') => screen.order = Order::Name,
        KeyCode::Char('j') | KeyCode::Down => screen.skipped += 1,
        KeyCode::PageDown => screen.skipped += page,
        // The last row is beyond no end.
        KeyCode::End => screen.skipped = usize::MAX / 2,
        KeyCode::Char('k') | KeyCode::Up => screen.skipped = screen.skipped.saturating_sub(1),
        KeyCode::PageUp => screen.skipped = screen.skipped.saturating_sub(page),
        KeyCode::Home => screen.skipped = 0,
        _ => {}
    }
    screen.sample.sort(screen.order);
    true
}

/// The events of the keyboard, read by a thread that ends with the program; closed without a keyboard.
fn keys() -> io::Result<UnboundedReceiver<Event>> {
    let (sender, receiver) = unbounded_channel();
    let read = move || while event::read().is_ok_and(|event| sender.send(event).is_ok()) {};
    thread::Builder::new().spawn(read)?;
    Ok(receiver)
}
