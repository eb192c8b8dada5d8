//! The handler: one effect, on one of two resources, and an end that the message asks for.
use std::io::Write;
use std::time::Duration;

use idempotent::{FencingToken, Key, Lease, Rejection};
use idempotent_testkit::history::{Journal, Kind, Line, Token};

use super::HandlerContext;
use crate::dying_store::die;
use crate::resource::Row;
use crate::time;
use crate::wire::{Dies, Ends, Message, News, line};

#[derive(Debug)]
pub(crate) struct Failure {
    for_good: bool,
}

impl Failure {
    const ONCE: Self = Self { for_good: false };

    pub(crate) fn is_for_good(&self) -> bool {
        self.for_good
    }
}

impl From<Rejection> for Failure {
    fn from(_: Rejection) -> Self {
        Self::ONCE
    }
}

impl HandlerContext {
    pub(crate) async fn handle(&self, key: &Key, message: &Message, dies: Option<Dies>) -> Result<String, Failure> {
        // Every run has one.
        let lease = Lease::current().ok_or(Failure::ONCE)?;
        let token = self.store.owner(key, lease.fencing()).map(|owner| Token(owner.0)).ok_or(Failure::ONCE)?;
        tokio::time::sleep(Duration::from_millis(message.before_ms)).await;
        if dies == Some(Dies::BeforeEffect) {
            die();
        }
        // Of those that fail, some have had their effect.
        let fails_late = message.key.is_multiple_of(2);
        if !fails_late {
            fail(message.ends, lease.attempt())?;
        }
        self.effect(key, token, lease.fencing(), message.fenced).await?;
        if dies == Some(Dies::AfterEffect) {
            die();
        }
        tokio::time::sleep(Duration::from_millis(message.after_ms)).await;
        if fails_late {
            fail(message.ends, lease.attempt())?;
        }
        Ok(format!("{} by {token} under {}", message.key, lease.fencing()))
    }

    /// The step that cannot be undone.
    pub(super) async fn effect(
        &self,
        key: &Key,
        token: Token,
        fencing: FencingToken,
        fenced: bool,
    ) -> Result<(), Failure> {
        let t0 = time::now();
        let accepted = if fenced { self.ask(key, token, fencing).await? } else { self.append(key, token)? };
        let event = if accepted { Kind::Effect } else { Kind::EffectRefused };
        let (key, token) = (Some(key.as_str().to_owned()), Some(token));
        // The file looks at no number, so there is none to be judged.
        let fence = fenced.then_some(fencing.0);
        self.journal.event(&Line { t0, key, token, fence, ..Line::new(time::now(), self.id, event) });
        if accepted { Ok(()) } else { Err(Failure::ONCE) }
    }

    /// Writes to the resource that rejects old fencing tokens. The resource is outside of this process, and may
    /// execute a write whose response is lost.
    async fn ask(&self, key: &Key, token: Token, fencing: FencingToken) -> Result<bool, Failure> {
        let (effect, written) = self.asks();
        self.tell(News::Write { effect, key: key.as_str().to_owned(), token, fence: fencing.0 });
        written.await.map_err(|_| Failure::ONCE)
    }

    /// The resource that takes everything.
    fn append(&self, key: &Key, token: Token) -> Result<bool, Failure> {
        let row = line(&Row { key: key.as_str().to_owned(), token });
        (&self.effects).write_all(row.as_bytes()).map_err(|_| Failure::ONCE)?;
        Ok(true)
    }
}

fn fail(ends: Ends, attempt: u32) -> Result<(), Failure> {
    match ends {
        Ends::Fails(times) if attempt <= times => Err(Failure::ONCE),
        Ends::FailsForGood => Err(Failure { for_good: true }),
        // Without the hook's noise.
        Ends::Panics(times) if attempt <= times => std::panic::resume_unwind(Box::new("asked to")),
        _ => Ok(()),
    }
}
