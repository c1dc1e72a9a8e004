//! A network that loses replies: it forwards everything until it sees a named command. It forwards that one, too, but
//! discards the server's reply and closes the connection. It does the same with a named word in what the server sends.
//! Or it closes the client's side at a named command, and delivers the command when the test says so. It also does so
//! at the n-th piece that clients send (what one read returns: a request, or several that were sent together), and can
//! then leave the client's side open. It can also lead new connections to another server, as an address does that moves
//! with the primary, and give a command a name that the server does not know.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex};

/// A listener on a loopback port; its threads end with the connections and with the test's process.
pub struct Proxy {
    pub port: u16,
    plan: Arc<Plan>,
}

#[derive(Default)]
struct Plan {
    server: AtomicU16,
    command: Mutex<Option<String>>,
    message: Mutex<Option<String>>,
    late: Mutex<Option<String>>,
    unknown: Mutex<Option<String>>,
    /// How many pieces more the clients send until the reply to one is lost; 0: no such plan.
    until_lost: AtomicUsize,
    /// The same until one is held back.
    until_late: AtomicUsize,
    delivery: Mutex<Option<Sender<()>>>,
    swallowed: AtomicUsize,
    ended: AtomicUsize,
}

impl Proxy {
    /// A proxy in front of the server at this port.
    pub fn before(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let port = listener.local_addr().expect("an address").port();
        let plan = Arc::new(Plan::default());
        plan.server.store(server, Ordering::SeqCst);
        let shared = Arc::clone(&plan);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server =
                    TcpStream::connect(("127.0.0.1", shared.server.load(Ordering::SeqCst)));
                let Ok(server) = server else { continue };
                pass_on(client, server, &shared);
            }
        });
        Proxy { port, plan }
    }

    /// The reply to the next such command will be lost.
    pub fn lose_reply_to(&self, command: &str) {
        *self.plan.command.lock().expect("a lock") = Some(command.to_string());
    }

    /// What the server sends next with this word will be lost.
    pub fn lose_message(&self, word: &str) {
        *self.plan.message.lock().expect("a lock") = Some(word.to_string());
    }

    /// The next such command is held back; the client sees its connection closed.
    pub fn hold_back(&self, command: &str) {
        *self.plan.late.lock().expect("a lock") = Some(command.to_string());
    }

    /// The reply to the n-th piece that clients send from now on will be lost; 0: to none.
    pub fn lose_reply_to_piece(&self, number: usize) {
        self.plan.until_lost.store(number, Ordering::SeqCst);
    }

    /// The n-th piece that clients send from now on is held back, and the connection stays open; 0: none.
    pub fn hold_back_piece(&self, number: usize) {
        self.plan.until_late.store(number, Ordering::SeqCst);
    }

    /// Whether something is held back.
    pub fn holds(&self) -> bool {
        self.plan.delivery.lock().expect("a lock").is_some()
    }

    /// Delivers to the server what is held back.
    pub fn deliver(&self) {
        let delivery = self.plan.delivery.lock().expect("a lock").take();
        delivery.expect("a command").send(()).expect("a connection");
    }

    /// New connections lead to the server at this port.
    pub fn lead_to(&self, server: u16) {
        self.plan.server.store(server, Ordering::SeqCst);
    }

    /// The number of replies and messages lost so far.
    pub fn lost(&self) -> usize {
        self.plan.swallowed.load(Ordering::SeqCst)
    }

    /// The server does not know this command any more, as an older module does not: its last letter is another one.
    pub fn make_unknown(&self, command: &str) {
        *self.plan.unknown.lock().expect("a lock") = Some(command.to_string());
    }

    /// The number of connections that have ended so far.
    pub fn ended(&self) -> usize {
        self.plan.ended.load(Ordering::SeqCst)
    }
}

impl Plan {
    /// Whether the named command is in these bytes of a client; if so, the plan is carried out once.
    fn concerns(&self, bytes: &[u8]) -> bool {
        let is_next = count_down(&self.until_lost);
        is_next
            || take_if_in(
                &self.command,
                &String::from_utf8_lossy(bytes).to_uppercase(),
            )
    }

    /// Changes the name of the command that is to be unknown.
    fn rename(&self, bytes: &mut [u8]) {
        let unknown = self.unknown.lock().expect("a lock");
        let Some(name) = unknown.as_ref().map(String::as_bytes) else {
            return;
        };
        let mut words = bytes.windows(name.len());
        let found = words.position(|word| word.eq_ignore_ascii_case(name));
        if let Some(at) = found {
            bytes[at + name.len() - 1] = b'_';
        }
    }

    /// The same with the command that is to be held back.
    fn holds_back(&self, bytes: &[u8]) -> bool {
        take_if_in(&self.late, &String::from_utf8_lossy(bytes).to_uppercase())
    }

    /// The same with the named word in bytes of the server.
    fn concerns_message(&self, bytes: &[u8]) -> bool {
        take_if_in(&self.message, &String::from_utf8_lossy(bytes))
    }
}

/// Whether this was the last of so many.
fn count_down(left: &AtomicUsize) -> bool {
    let counted = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
        left.checked_sub(1)
    });
    counted == Ok(1)
}

fn take_if_in(planned: &Mutex<Option<String>>, text: &str) -> bool {
    let mut planned = planned.lock().expect("a lock");
    planned
        .take_if(|word| text.contains(word.as_str()))
        .is_some()
}

/// What becomes of bytes.
enum Fate {
    Pass,
    /// Discarded.
    Discard,
    /// Discarded, and the connection is closed.
    Close,
}

/// Two threads, one for each direction. `mute` is set before the server gets the command.
fn pass_on(client: TcpStream, server: TcpStream, plan: &Arc<Plan>) {
    let both = |socket: &TcpStream| socket.try_clone().expect("a socket");
    let (client_in, client_out) = (both(&client), client);
    let (server_in, server_out) = (both(&server), server);
    for socket in [&client_out, &server_out] {
        socket.set_nodelay(true).expect("a socket");
    }
    let mute = Arc::new(AtomicBool::new(false));
    let late = Arc::new(AtomicBool::new(false));
    let (is_mute, is_late, shared) = (Arc::clone(&mute), Arc::clone(&late), Arc::clone(plan));
    let client = both(&client_out);
    std::thread::spawn(move || {
        copy(client_in, server_out, |bytes| {
            shared.rename(bytes);
            if shared.concerns(bytes) {
                mute.store(true, Ordering::SeqCst);
            }
            let stalls = count_down(&shared.until_late);
            if stalls || shared.holds_back(bytes) {
                let (sender, delivery) = channel();
                *shared.delivery.lock().expect("a lock") = Some(sender);
                if !stalls {
                    late.store(true, Ordering::SeqCst);
                    let _ = client.shutdown(Shutdown::Both);
                }
                let _ = delivery.recv();
            }
            Fate::Pass
        });
        shared.ended.fetch_add(1, Ordering::SeqCst);
    });
    let shared = Arc::clone(plan);
    std::thread::spawn(move || {
        copy(server_in, client_out, |bytes| {
            if is_late.load(Ordering::SeqCst) {
                return Fate::Discard;
            }
            if is_mute.load(Ordering::SeqCst) || shared.concerns_message(bytes) {
                shared.swallowed.fetch_add(1, Ordering::SeqCst);
                return Fate::Close;
            }
            Fate::Pass
        });
    });
}

/// Copies until one side closes or these bytes end the connection; then both are closed.
fn copy(mut from: TcpStream, mut to: TcpStream, fate: impl Fn(&mut [u8]) -> Fate) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        let bytes = &mut bytes[..length];
        let is_over = match fate(bytes) {
            Fate::Pass => to.write_all(bytes).is_err(),
            Fate::Discard => false,
            Fate::Close => true,
        };
        if is_over {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
