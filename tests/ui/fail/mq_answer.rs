// expect: `u64` does not say how to settle the message
use idempotent::mq::{MessageHandler, KeyFrom, Message, Messages};

fn handling() -> MessageHandler {
    let messages = Messages::raw().keyed(KeyFrom::message_id());
    messages.run(|_: Message<()>| async { Ok::<u64, String>(17) })
}

fn main() {
    handling();
}
