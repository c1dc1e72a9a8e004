//! A proxy between client and server that loses, cuts and delays what it carries.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// On a port of its own, in front of a server's. Its threads end with their connections.
pub struct Proxy {
    pub port: u16,
    plan: Arc<Plan>,
}

/// What happens to the next request that holds these words.
#[derive(Default)]
struct Plan {
    /// It is served; the reply is thrown away and the connection closed.
    swallow: Mutex<Option<String>>,
    /// It is held back, and goes to the server when it is let go, whatever the client has done meanwhile.
    delay: Mutex<Option<String>>,
    /// Its reply, and all later ones on that connection, are held back until it is let go.
    hold: Mutex<Option<String>>,
    is_delayed: AtomicBool,
    let_go: AtomicBool,
    /// Nothing goes either way, on any connection.
    is_cut: AtomicBool,
    /// Each request is thrown away and its connection closed.
    loses: AtomicBool,
}

impl Proxy {
    pub fn before(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let plan = Arc::new(Plan::default());
        let shared = plan.clone();
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                carry(client, server, shared.clone());
            }
        });
        Proxy { port, plan }
    }

    /// The reply to the next such request never arrives.
    pub fn swallow_reply_to(&self, words: &str) {
        *self.plan.swallow.lock().unwrap() = Some(words.into());
    }

    pub fn has_swallowed(&self) -> bool {
        self.plan.swallow.lock().unwrap().is_none()
    }

    /// The next such request is late. (The one before has been let go.)
    pub fn delay(&self, words: &str) {
        self.plan.is_delayed.store(false, Ordering::SeqCst);
        self.plan.let_go.store(false, Ordering::SeqCst);
        *self.plan.delay.lock().unwrap() = Some(words.into());
    }

    /// The reply to the next such request is late.
    pub fn hold_reply_to(&self, words: &str) {
        self.plan.is_delayed.store(false, Ordering::SeqCst);
        self.plan.let_go.store(false, Ordering::SeqCst);
        *self.plan.hold.lock().unwrap() = Some(words.into());
    }

    pub fn has_delayed(&self) -> bool {
        self.plan.is_delayed.load(Ordering::SeqCst)
    }

    /// What was late arrives.
    pub fn let_go(&self) {
        self.plan.let_go.store(true, Ordering::SeqCst);
    }

    /// Cuts all connections without closing one, or mends them.
    pub fn cut(&self, is_cut: bool) {
        self.plan.is_cut.store(is_cut, Ordering::SeqCst);
    }

    /// From now on each request is thrown away and its connection closed, or no longer.
    pub fn lose(&self, loses: bool) {
        self.plan.loses.store(loses, Ordering::SeqCst);
    }
}

fn carry(client: TcpStream, server: TcpStream, plan: Arc<Plan>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let swallows = Arc::new(AtomicBool::new(false));
    let holds = Arc::new(AtomicBool::new(false));
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (planned, flag, holding) = (plan.clone(), swallows.clone(), holds.clone());
    thread::spawn(move || {
        pump(&mut from, &mut to, |request| {
            planned.wait_while_cut();
            if has(&planned.swallow, request) {
                flag.store(true, Ordering::SeqCst);
            }
            if has(&planned.hold, request) {
                holding.store(true, Ordering::SeqCst);
                planned.is_delayed.store(true, Ordering::SeqCst);
            }
            if has(&planned.delay, request) {
                planned.is_delayed.store(true, Ordering::SeqCst);
                planned.wait_for(&planned.let_go, true);
            }
            !planned.loses.load(Ordering::SeqCst)
        });
    });
    let (mut from, mut to) = (server, client);
    thread::spawn(move || {
        pump(&mut from, &mut to, |_| {
            plan.wait_while_cut();
            if holds.load(Ordering::SeqCst) {
                plan.wait_for(&plan.let_go, true);
            }
            !swallows.load(Ordering::SeqCst)
        });
    });
}

/// Carries one way until an end closes, or a chunk is to be dropped.
fn pump(from: &mut TcpStream, to: &mut TcpStream, mut passes: impl FnMut(&[u8]) -> bool) {
    let mut chunk = [0; 65_536];
    while let Ok(len) = from.read(&mut chunk) {
        if len == 0 || !passes(&chunk[..len]) || to.write_all(&chunk[..len]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

impl Plan {
    fn wait_while_cut(&self) {
        self.wait_for(&self.is_cut, false);
    }

    fn wait_for(&self, flag: &AtomicBool, wanted: bool) {
        for _ in 0..10_000 {
            if flag.load(Ordering::SeqCst) == wanted {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Whether this is the request of the plan, which is done with then.
fn has(plan: &Mutex<Option<String>>, request: &[u8]) -> bool {
    let mut plan = plan.lock().unwrap();
    let text = String::from_utf8_lossy(request);
    let is_it = plan.as_ref().is_some_and(|words| text.contains(words));
    if is_it {
        *plan = None;
    }
    is_it
}
