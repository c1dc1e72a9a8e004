//! Random sequences of commands on a live server, compared reply by reply with a model that was written from
//! docs/COMMANDS.md alone. `make fuzz` plays more of them, guided by code coverage.
//!
//! `LOCK_SEQUENCES` sets the number of sequences, `LOCK_SEED` the first; a failure names its own.

mod model;
mod ops;
mod play;

pub use ops::Sequence;
pub use play::Player;

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

    use super::{Player, Sequence};

    fn number_from_env(name: &str, default: u64) -> u64 {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    }

    #[test]
    fn random_sequences_get_the_replies_of_the_model() {
        let first = number_from_env("LOCK_SEED", 1);
        let mut player = Player::new();
        for seed in first..first + number_from_env("LOCK_SEQUENCES", 1_000) {
            let sequence = Sequence::from_seed(seed);
            let played = catch_unwind(AssertUnwindSafe(|| player.play(&sequence)));
            if let Err(failure) = played {
                println!(
                    "LOCK_SEED={seed} LOCK_SEQUENCES=1, places kept: {}",
                    sequence.keeps_places
                );
                for op in &sequence.ops[..player.steps] {
                    println!("    {op:?}");
                }
                resume_unwind(failure);
            }
        }
    }
}
