//! A producer, which schedules tasks in transactions and alone, and cancels some of them.
use std::sync::Arc;
use std::time::Duration;

use idempotent::Timestamp;
use idempotent::delay::ScheduledTask;
use idempotent::mq::{Cancelled, DelayErrorKind, Scheduled};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Note;
use super::site::OpenTable;
use super::statements::{Task, TaskTables};
use crate::delivery::database::on_database;
use crate::delivery::process::{Point, ProcessContext, now};
use crate::delivery::{DeliveryFlaw, SqlStore};

/// The pause between two tasks.
const PACE: Duration = Duration::from_millis(30);
/// The maximum number of tasks at work.
const MOST: usize = 16;
/// Percentages of the tasks.
const BOUND: u64 = 70;
const ROLLED_BACK: u64 = 20;
const POISON: u64 = 4;
const REPEATED: u64 = 20;
const CANCELLED: u64 = 15;
/// The pause after an error.
const REST: Duration = Duration::from_millis(50);
/// The difference in µs between the time of a row and the earlier time of its task, for the flaw of this kind.
const EARLY: u64 = 100_000;

struct Producer<Db: TaskTables> {
    context: Arc<ProcessContext>,
    open: OpenTable<Db>,
}

/// Schedules tasks until the end of the faults.
pub(in crate::delivery) async fn produce(context: &Arc<ProcessContext>) -> anyhow::Result<()> {
    on_database!(SqlStore::of(&context.start.database), Db => produce_on::<Db>(context).await)
}

async fn produce_on<Db: TaskTables>(context: &Arc<ProcessContext>) -> anyhow::Result<()> {
    let open = OpenTable::<Db>::reach(&context.start.database).await;
    let producer = Arc::new(Producer { context: context.clone(), open });
    let (mut at_work, mut count) = (JoinSet::new(), 0);
    while !context.is_peace() {
        sleep(PACE).await;
        if at_work.len() < MOST {
            count += 1;
            let (producer, id) = (producer.clone(), format!("t{}-{count}", context.start.id));
            at_work.spawn(async move { producer.task(id).await });
        }
        while at_work.try_join_next().is_some() {}
    }
    while at_work.join_next().await.is_some() {}
    Ok(())
}

impl<Db: TaskTables> Producer<Db> {
    async fn task(&self, id: String) {
        let dice = &self.context.dice;
        let late = dice.ms(1, 900);
        let (poison, bound) = (dice.percent(POISON), dice.percent(BOUND));
        let task = Task { id, due: now() + late, poison, bound };
        let sure = if bound { self.bound(&task).await } else { self.alone(&task).await };
        if sure && dice.percent(CANCELLED) {
            let percent = u32::try_from(dice.below(130)).unwrap_or_default();
            sleep(late * percent / 100).await;
            self.cancel(&task.id).await;
        }
    }

    fn scheduled(&self, task: &Task) -> ScheduledTask {
        let early = self.context.start.flaw == Some(DeliveryFlaw::SchedulesEarly);
        let due = if early { Timestamp(task.due.0.saturating_sub(EARLY)) } else { task.due };
        ScheduledTask::at(&task.id, due, if task.poison { "poison" } else { "" })
    }

    /// Writes row and task in one transaction. Returns true if the commit is known.
    async fn bound(&self, task: &Task) -> bool {
        match self.transact(task).await {
            Ok(committed) => committed,
            Err(error) => {
                eprintln!("not scheduled: {error:#}");
                false
            }
        }
    }

    async fn transact(&self, task: &Task) -> anyhow::Result<bool> {
        let mut tx = Db::begin(&self.open.pool).await?;
        Db::write(&mut tx, task).await?;
        if self.context.start.flaw == Some(DeliveryFlaw::SchedulesOutside) {
            self.open.table.put(&self.scheduled(task)).await?;
        } else {
            self.open.table.put_in(&mut tx, &self.scheduled(task)).await?;
        }
        self.context.may_die(Point::InTransaction);
        if self.context.dice.percent(ROLLED_BACK) {
            tx.rollback().await?;
            self.context.notes.write(&Note::RolledBack { id: task.id.clone() });
            return Ok(false);
        }
        self.context.may_die_in(Point::AtCommit, tx.commit()).await?;
        self.open.table.wake();
        Ok(true)
    }

    /// Writes the row, and then schedules the task until the database accepts the task. Returns true if the first request
    /// was the only one, so that no copy of the task can follow.
    async fn alone(&self, task: &Task) -> bool {
        let written = async {
            let mut connection = self.open.pool.acquire().await?;
            Db::write(&mut connection, task).await
        };
        if let Err(error) = written.await {
            eprintln!("not written: {error}");
            return false;
        }
        let mut sure = true;
        loop {
            let scheduled = self.scheduled(task);
            match self.context.may_die_in(Point::AfterSend, self.open.table.put(&scheduled)).await {
                Ok(answer) => {
                    self.context.notes.write(&Note::Kept { id: task.id.clone() });
                    let repeated = self.context.dice.percent(REPEATED);
                    if repeated {
                        let _ = self.open.table.put(&scheduled).await;
                    }
                    return sure && !repeated && answer == Scheduled::New;
                }
                Err(error) if error.kind() == DelayErrorKind::Refused => {
                    eprintln!("{} was refused: {error}", task.id);
                    return false;
                }
                Err(_) => sure = false,
            }
            sleep(REST).await;
        }
    }

    async fn cancel(&self, id: &str) {
        self.context.notes.write(&Note::Cancelling { id: id.to_owned() });
        let cancelled: anyhow::Result<Cancelled> = async {
            if self.context.start.flaw == Some(DeliveryFlaw::KeepsCancelled) {
                return Ok(Cancelled::Done);
            }
            let mut tx = Db::begin(&self.open.pool).await?;
            let cancelled = self.open.table.cancel_in(&mut tx, id).await?;
            self.context.may_die(Point::InTransaction);
            self.context.may_die_in(Point::AtCommit, tx.commit()).await?;
            Ok(cancelled)
        }
        .await;
        if matches!(cancelled, Ok(Cancelled::Done)) {
            self.context.notes.write(&Note::Cancelled { id: id.to_owned(), heard: now().0 });
        }
    }
}
