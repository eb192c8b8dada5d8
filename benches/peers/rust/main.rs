//! The peers in Rust: `peers NAME URL` answers the lines of `cargo xtask bench peers`.
mod idempotent2;
mod layer;
mod peer;
mod request;

use crate::idempotent2::Idempotent2;
use crate::layer::Layer;
use crate::peer::serve;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, url] = &arguments[..] else { panic!("peers NAME URL") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("threads can be started").block_on(async {
        match name.as_str() {
            "idempotent-2" => serve(Idempotent2::connect(url).await).await,
            "axum-idempotent" => serve(Layer::connect(url).await).await,
            _ => panic!("unknown peer `{name}`"),
        }
    });
}
