//! A small source of random choices: the same seed makes the same case.

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below this one.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True in this percentage of cases.
    pub fn percent(&mut self, times: usize) -> bool {
        self.below(100) < times
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// The first choice in this percentage of cases, else any.
    pub fn mostly<T: Copy>(&mut self, times: usize, choices: &[T]) -> T {
        if self.percent(times) {
            choices[0]
        } else {
            self.pick(choices)
        }
    }
}
