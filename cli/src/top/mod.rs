//! `redis-lock top`: a live view of the locks of a server.

mod sample;
mod screen;

use std::io::{self, IsTerminal};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::DefaultTerminal;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};
use tokio::time::sleep;

use crate::escape::json;
use crate::failure::{Failure, BY_SIGNAL, OS};
use crate::output::print;
use crate::servers::Connect;
use crate::signals::Signals;
use crate::top::sample::{Order, Sample, Sampler};
use crate::top::screen::Screen;
use crate::values::seconds;
use crate::watch;

/// The waiters of a lock that the graph is made of.
const QUEUE: u64 = 100;
/// The shortest time between two objects of `--json`.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// Watch the locks of a server
///
/// Shows the locks that are held and waited for, the longest waits first, with their holders and the rate of hand-offs.
/// q ends it; w, h and n order the rows by wait, time held and name; g shows the graph of waits, and the rows again.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The time from one sample to the next.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// One frame as plain text, and no more; also where the output is no terminal.
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
    if args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return once(&args, &name, sampler).await;
    }
    let signals = Signals::listen().map_err(|error| Failure::new(OS, error))?;
    let top = Top {
        name,
        sampler,
        sample: first,
        order: Order::Wait,
        is_graph: false,
        trouble: None,
    };
    let terminal = ratatui::init();
    let ended = top.live(&args, terminal, signals).await;
    ratatui::restore();
    ended
}

/// The samples as JSON. A failure after the first sample is an object, too.
async fn objects(args: &Args, name: &str, mut sampler: Sampler) -> Result<i32, Failure> {
    let mut signals = Signals::listen().map_err(|error| Failure::new(OS, error))?;
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
        print([json(&object)].into_iter())?;
        if args.once {
            return Ok(0);
        }
    }
}

/// The rates are those of one interval.
async fn once(args: &Args, name: &str, mut sampler: Sampler) -> Result<i32, Failure> {
    sleep(args.interval).await;
    let mut sample = sampler.take(true).await?;
    sample.sort(Order::Wait);
    let screen = Screen {
        server: name,
        sample: &sample,
        order: Order::Wait,
        is_graph: false,
        trouble: None,
    };
    print(screen.text(screen.width()).lines().map(String::from))?;
    Ok(0)
}

struct Top {
    name: String,
    sampler: Sampler,
    sample: Sample,
    order: Order,
    is_graph: bool,
    trouble: Option<String>,
}

impl Top {
    async fn live(
        mut self,
        args: &Args,
        mut terminal: DefaultTerminal,
        mut signals: Signals,
    ) -> Result<i32, Failure> {
        let mut keys = keys();
        let mut is_due = false;
        loop {
            self.sample.sort(self.order);
            let screen = Screen {
                server: &self.name,
                sample: &self.sample,
                order: self.order,
                is_graph: self.is_graph,
                trouble: self.trouble.as_deref(),
            };
            let drawn = terminal.draw(|frame| screen.draw(frame));
            drawn.map_err(|error| Failure::new(OS, error))?;
            let sampler = &mut self.sampler;
            let pause = match std::mem::take(&mut is_due) {
                true => Duration::ZERO,
                false => args.interval,
            };
            let look = async {
                sleep(pause).await;
                sampler.take(false).await
            };
            tokio::select! {
                sample = look => match sample {
                    Ok(sample) => (self.sample, self.trouble) = (sample, None),
                    Err(failure) => self.trouble = Some(failure.to_string()),
                },
                event = keys.recv() => match event.map(|event| action(&event)) {
                    None | Some(Action::Quit) => return Ok(0),
                    Some(Action::Order(order)) => self.order = order,
                    Some(Action::Graph) => {
                        self.is_graph = !self.is_graph;
                        self.sampler.waiters = if self.is_graph { QUEUE } else { 0 };
                        is_due = true;
                    }
                    Some(Action::None) => {}
                },
                signal = signals.next_fatal() => return Ok(BY_SIGNAL + signal as i32),
            }
        }
    }
}

enum Action {
    Quit,
    Order(Order),
    Graph,
    None,
}

fn action(event: &Event) -> Action {
    let Event::Key(key) = event else {
        return Action::None;
    };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => Action::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Action::Quit,
        KeyCode::Char('w') => Action::Order(Order::Wait),
        KeyCode::Char('h') => Action::Order(Order::Held),
        KeyCode::Char('g') => Action::Graph,
        KeyCode::Char('n') => Action::Order(Order::Name),
        _ => Action::None,
    }
}

/// The events of the keyboard, read by a thread that ends with the program; closed without a keyboard.
fn keys() -> UnboundedReceiver<Event> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    receiver
}
