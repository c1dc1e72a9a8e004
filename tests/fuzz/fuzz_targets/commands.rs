//! Sequences of commands on a live server, compared reply by reply with the model of the contract: the
//! player, the model and the steps are those of tests/server/differential. The fuzzer sees what it does
//! to the model, not to the server, and looks for sequences that lead the model to new places.

#![no_main]

#[path = "../../server/differential/mod.rs"]
mod differential;
use redis_lock_harness as common;

use std::panic::{catch_unwind, set_hook, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};

use differential::{Player, Sequence};
use libfuzzer_sys::fuzz_target;

/// The server of all sequences; it ends with the fuzzer.
static PLAYER: Mutex<Option<Player>> = Mutex::new(None);

fuzz_target!(|bytes: &[u8]| {
    let mut player = PLAYER.lock().unwrap_or_else(PoisonError::into_inner);
    let player = player.get_or_insert_with(start);
    let sequence = Sequence::from_bytes(bytes);
    if catch_unwind(AssertUnwindSafe(|| player.play(&sequence))).is_err() {
        for op in &sequence.ops[..player.steps] {
            eprintln!("    {op:?}");
        }
        player.end();
        std::process::abort();
    }
});

fn start() -> Player {
    // The fuzzer's own hook would end the process at once, and leave the server behind.
    set_hook(Box::new(|info| eprintln!("{info}")));
    // SAFETY: the function takes nothing and lives as long as the program.
    unsafe { libc::atexit(end) };
    Player::new()
}

extern "C" fn end() {
    if let Ok(mut player) = PLAYER.try_lock() {
        drop(player.take());
    }
}
