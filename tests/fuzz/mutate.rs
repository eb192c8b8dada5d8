//! Derivation of inputs from others, reproducibly.

/// A generator that draws from its seeds and from recently derived inputs.
pub(crate) struct Mutator {
    dice: u64,
    pool: Vec<Vec<u8>>,
    seeds: usize,
}

/// The maximum length: longer inputs find nothing more, except keys over their limit.
const LONGEST: usize = 4096;

/// The number of derived inputs that are kept, so that changes accumulate.
const KEPT: usize = 256;

impl Mutator {
    pub(crate) fn new(seed: u64, pool: Vec<Vec<u8>>) -> Self {
        assert!(!pool.is_empty(), "a corpus is needed");
        Self { dice: seed, seeds: pool.len(), pool }
    }

    pub(crate) fn next(&mut self) -> Vec<u8> {
        // Half of the inputs start at a seed. Otherwise all would drift into noise.
        let among = if self.roll(2) == 0 { self.seeds } else { self.pool.len() };
        let at = self.roll(among);
        let mut input = self.pool[at].clone();
        for _ in 0..=self.roll(4) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        if self.pool.len() < self.seeds + KEPT {
            self.pool.push(input.clone());
        } else {
            let place = self.seeds + self.roll(KEPT);
            self.pool[place] = input.clone();
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.roll(input.len() + 1);
        let length = self.roll(9).min(input.len() - at);
        let one = input.get(at).copied();
        match (self.roll(8), one) {
            (0, Some(_)) => input[at] ^= 1 << self.roll(8),
            (1, Some(byte)) => input[at] = byte.wrapping_add(1 + u8::try_from(self.roll(255)).unwrap()),
            (2, Some(_)) => input.truncate(at),
            (3, Some(_)) => drop(input.drain(at..at + length)),
            (4, Some(_)) => {
                let again = input[at..at + length].to_vec();
                input.splice(at..at, again);
            }
            (5, _) => {
                let other = self.roll(self.pool.len());
                let from = self.roll(self.pool[other].len() + 1);
                input.truncate(at);
                input.extend_from_slice(&self.pool[other][from..]);
            }
            (6, _) => {
                let telling = TELLING[self.roll(TELLING.len())];
                let end = if self.roll(2) == 0 { at } else { (at + telling.len()).min(input.len()) };
                input.splice(at..end, telling.iter().copied());
            }
            _ => input.insert(at, u8::try_from(self.roll(256)).unwrap()),
        }
    }

    /// Returns a number below `n`, by splitmix64 as in the test kit.
    fn roll(&mut self, n: usize) -> usize {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(n).unwrap()).unwrap()
    }
}

/// Bytes with a special meaning: limits of numbers, hostile text, pieces of the forms under test.
const TELLING: [&[u8]; 22] = [
    &[0xff; 4],
    &[0xff; 8],
    &[0; 8],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0, 0, 0, 0, 0, 0, 0x20, 0],
    b"\0",
    b"\r\n",
    b"\x1b[31m",
    "\u{202e}".as_bytes(),
    "\u{200b}".as_bytes(),
    "µs".as_bytes(),
    b"\xc3\x28",
    b"{}",
    b"':;--",
    b"18446744073709551615",
    b"0.1",
    b"-1",
    b"1e9",
    b" ",
    b"ms",
    b"\"lease\":",
    b"null",
];
