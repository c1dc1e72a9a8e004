//! The subscriber of tickets that end together: reads as fast as the server writes, and counts the messages by their
//! length, which is the same for all.

use std::io::{self, Read};
use std::thread::JoinHandle;
use std::time::Instant;

use super::queue::{unexpected, CHANNEL};
use crate::server::Server;
use crate::wire::{reply_len, request};

/// A thread that reads this many messages.
pub struct Listener(JoinHandle<io::Result<Instant>>);

impl Listener {
    /// Subscribes; then the thread waits for messages that have this word.
    pub fn start(server: &Server, messages: usize, word: &'static str) -> io::Result<Listener> {
        let mut conn = server.conn()?;
        conn.send(&request(&["SUBSCRIBE", CHANNEL]))?;
        conn.reply()?;
        let mut stream = conn.into_stream();
        stream.set_read_timeout(None)?;
        let thread = std::thread::spawn(move || {
            let mut chunk = vec![0; 256 * 1024];
            let mut first = Vec::new();
            let mut total = usize::MAX;
            let mut bytes = 0;
            while bytes < total {
                let len = stream.read(&mut chunk)?;
                if len == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                bytes += len;
                if total < usize::MAX {
                    continue;
                }
                first.extend_from_slice(&chunk[..len]);
                if let Some(each) = reply_len(&first) {
                    let message = &first[..each];
                    if !String::from_utf8_lossy(message).contains(word) {
                        return Err(unexpected(message));
                    }
                    total = each * messages;
                }
            }
            Ok(Instant::now())
        });
        Ok(Listener(thread))
    }

    /// The moment at which the last message had been read.
    pub fn done(self) -> io::Result<Instant> {
        let at = self.0.join();
        at.map_err(|_| io::Error::other("the subscriber has panicked"))?
    }
}
