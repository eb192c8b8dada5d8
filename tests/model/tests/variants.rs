//! draft
use idempotent_model::check::check;
use idempotent_model::variant::{Variant, Effect};
#[test]
fn draft() {
    for v in [Variant::TRANSACTIONAL, Variant::CORRECT, Variant::UNFENCED] {
        let r = check(v);
        eprintln!("{r}");
        eprintln!("{:?}", r.seen.iter().map(|(s, t)| (s.name(), t.len())).collect::<Vec<_>>());
    }
    let _ = Effect::Fenced;
}
