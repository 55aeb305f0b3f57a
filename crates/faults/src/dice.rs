//! A repeatable random number generator.

use std::time::{SystemTime, UNIX_EPOCH};

/// Numbers from a seed: xorshift.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `sides`; 0 when there are none.
    pub fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The low bits of xorshift are the poorest.
        (self.0 >> 11).checked_rem(sides).unwrap_or(0)
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        of.get(self.below(of.len() as u64) as usize).copied()
    }
}

/// A number from the environment, or the usual one.
pub fn env_number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(usual)
}

/// The seed of this run: `HELVE_SEED`, or another one each time. It is printed, so that a run can be repeated.
pub fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |it| it.as_nanos() as u64 % 1_000_000);
    let seed = env_number("HELVE_SEED", now);
    eprintln!("HELVE_SEED={seed}");
    seed
}
