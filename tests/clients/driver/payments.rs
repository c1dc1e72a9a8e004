//! HTTP on both sides of a service: its clients, and the payments that it calls.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use redis_lock_harness::patience;

/// A provider of payments, which answers when the test lets it.
pub struct Payments {
    pub port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    asked: usize,
    is_open: bool,
}

impl Payments {
    pub fn start() -> Payments {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = shared.clone();
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        Payments { port, state }
    }

    /// How many requests have come.
    pub fn asked(&self) -> usize {
        self.state.0.lock().expect("a state").asked
    }

    /// Answers all requests, also those to come.
    pub fn answer(&self) {
        self.state.0.lock().expect("a state").is_open = true;
        self.state.1.notify_all();
    }
}

/// The answer waits, but not longer than a test.
fn answer(mut stream: TcpStream, (state, changed): &(Mutex<State>, Condvar)) {
    let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
    if lines.any(|line| line.is_ok_and(|line| line.is_empty())) {
        let mut state = state.lock().expect("a state");
        state.asked += 1;
        let waiting = changed.wait_timeout_while(state, patience(), |state| !state.is_open);
        drop(waiting.expect("a state"));
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
}

/// The response to a request, when it comes.
pub struct Response(JoinHandle<String>);

/// Asks the service at this port to charge the order 7.
pub fn post(port: u16) -> Response {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the service");
    stream.set_read_timeout(Some(patience())).expect("a socket");
    let header = "Host: here\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    write!(stream, "POST /orders/7 HTTP/1.1\r\n{header}").expect("the service");
    Response(std::thread::spawn(move || {
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        response
    }))
}

impl Response {
    /// Waits for the status.
    pub fn status(self) -> u16 {
        let response = self.0.join().expect("a response");
        let mut words = response.split(' ').skip(1);
        let status = words.next().and_then(|word| word.parse().ok());
        status.unwrap_or_else(|| panic!("{response:?}"))
    }
}
