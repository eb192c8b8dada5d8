//! One key for each number, the same for the library and for the floors.
use idempotent::{Identity, Scene};

/// Returns a key with the length of an order number or a broker's message id.
pub fn text(number: u64) -> [u8; 20] {
    let mut text = *b"order-00000000000000";
    let mut rest = number;
    for digit in text[6..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    text
}

pub fn identity(number: u64) -> Identity {
    Identity::new(Scene::Mq, "bench", &text(number)[..])
}
