// expect: the codec `Json` cannot store a `HandlerResult` for replay
use idempotent::mq::HandlerResult;
use idempotent::{Disposition, Rejection, idempotent};

#[idempotent(scene = mq, key = order)]
async fn charge(order: u64) -> Result<HandlerResult, Rejection> {
    Ok(HandlerResult::Never { reason: format!("no order {order}").into() })
}

#[idempotent(scene = mq, key = order)]
async fn refund(order: u64) -> Result<Disposition, Rejection> {
    Ok(Disposition::DeadLetter { reason: format!("no order {order}").into() })
}

fn main() {
    let _ = (charge(1), refund(1));
}
