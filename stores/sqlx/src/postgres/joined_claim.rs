//! A run whose whole effect is one statement: claim, effect and record are one statement, in one round trip.
use std::time::Duration;

use idempotent_core::protocol::Write;
use idempotent_core::{
    Call, Claim, ClaimRequest, DefaultReply, Grant, Handler, InFlight, Json, Lease, Rejection, State, StoreError,
    StoreErrorKind,
};
use sqlx::postgres::PgRow;
use sqlx::{Arguments, AssertSqlSafe, Execute, Postgres, Transaction};

use super::dialect::{PgValue, PostgresDialect};
use super::effect_statement::EffectStatement;
use super::sql::{NOW, columns};
use crate::inbox::{EffectClaim, Inbox, in_place};
use crate::row::{COLUMNS, Cells, VERSION, micros};
use crate::server::{Driver, Query, ServerStore, Value, id, owner, plus};

impl Inbox<Postgres> {
    /// Claims the key, executes the statement, and records the result, all in one statement and one round trip. Returns
    /// the number of affected rows.
    ///
    /// The statement must be one INSERT, UPDATE or DELETE without RETURNING, and must read from `claimed`. This relation
    /// has one row if the run holds the key, and otherwise none. Its only column, `fencing`, is the fencing token, a
    /// `bigint`. Effects that no rollback undoes, such as the next value of a sequence, are not covered.
    ///
    /// In all other respects, the call behaves like [`run`](Self::run): duplicates receive the recorded number, and a
    /// statement that fails leaves no record. If the key has a record that the claim must change, the inbox claims the key and executes the
    /// statement in a transaction, with more round trips. [`leased`](Self::leased) inboxes always do. A failed statement
    /// is executed a second time in this way, and the server logs both errors.
    ///
    /// ```no_run
    /// # use idempotent_core::{Call, Identity, Scene};
    /// # use idempotent_sqlx::Inbox;
    /// # async fn example(inbox: Inbox<sqlx::Postgres>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// type Error = Box<dyn std::error::Error + Send + Sync>;
    ///
    /// let call = Call::new(Identity::new(Scene::Mq, "orders", "o-17"));
    /// let pay = sqlx::query("UPDATE account SET balance = balance - $1 FROM claimed WHERE id = $2").bind(500).bind(1);
    /// let rows = inbox.execute::<Error>(call, pay).await?;
    /// # let _ = rows;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the statement, [`sqlx::Error::Configuration`] for a statement that is not of the required form, or
    /// the rejection of the call.
    ///
    /// # Cancellation
    /// The statement takes effect as a whole or not at all, and a duplicate receives its result.
    pub async fn execute<E>(&self, call: impl Into<Call>, statement: impl Execute<'_, Postgres>) -> Result<u64, E>
    where
        E: From<Rejection> + From<sqlx::Error>,
    {
        let effect = EffectStatement::new(statement)?;
        let (executor, mode) = self.settings();
        let (call, handle) = call.into().within::<Transaction<'static, Postgres>>(executor, mode);
        handle.join_claim(Box::new(effect.clone()));
        let run = || async move {
            if let Some(rows) = handle.joined() {
                return Ok(rows);
            }
            let fencing = Lease::current().map_or(0, |lease| lease.fencing().0.cast_signed());
            let mut transaction = handle.lend();
            let executed = effect.after_the_claim(fencing).execute(&mut **transaction).await?;
            Ok::<_, E>(executed.rows_affected())
        };
        executor.run(call, Handler::<DefaultReply, Json, _, _>::new(run)).await
    }
}

impl ServerStore<PostgresDialect> {
    /// Claims the key and executes the effect in one statement.
    pub(super) async fn claim_with(
        &self,
        request: &ClaimRequest,
        retain: Duration,
        effect: &EffectStatement,
    ) -> Result<EffectClaim, StoreError> {
        let row = self.runner.first_unless_refused(self.joined(request, retain, effect)).await?;
        // In a transaction, the error of a refused statement is that of the handler.
        let Some(row) = row else { return Ok(EffectClaim::NotExecuted) };
        let claimed = self.read_claim(&row, request)?;
        if let EffectClaim::Executed { claim, .. } | EffectClaim::Answered(claim) = &claimed {
            self.recent_keys.saw(&request.key, claim);
        }
        Ok(claimed)
    }

    fn read_claim(&self, row: &PgRow, request: &ClaimRequest) -> Result<EffectClaim, StoreError> {
        // Without a record, another transaction holds the lock of the key.
        if row.int(COLUMNS.len()).ok().flatten().is_none() {
            return Ok(EffectClaim::Answered(Claim::InFlight(InFlight::Busy)));
        }
        let found = self.seen(row)?;
        match &found.record.state {
            // A repeated claim finds the record of its first copy, whose answer was lost.
            State::Consumed { owner, value: Some(value) } if *owner == request.owner => {
                let rows = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                let rows = rows.ok_or_else(|| {
                    StoreError::new(StoreErrorKind::Corrupt).because("field `value` is not a number of rows")
                })?;
                let (fencing, attempt) = (found.record.fencing, found.record.attempt);
                let grant = Grant { fencing, attempt, lease: request.lease, taken_over: None };
                Ok(EffectClaim::Executed { claim: Claim::Acquired(grant), rows })
            }
            _ => Ok(match in_place(Some(&found.record), request, found.now) {
                (claim, Write::Keep) => EffectClaim::Answered(claim),
                _ => EffectClaim::NotExecuted,
            }),
        }
    }

    /// Returns the statement that claims, executes the effect and records the result. If the effect does not depend on
    /// `claimed`, and the key was not claimed, the division fails and nothing takes effect.
    fn joined(&self, request: &ClaimRequest, retain: Duration, effect: &EffectStatement) -> Query<PostgresDialect> {
        let (table, columns) = (&self.dialect.table, columns());
        let place = |number: usize| format!("${}", effect.arguments.len() + number);
        let (id_, owner_, retain_, fingerprint_, name_, lock_) =
            (place(1), place(2), place(3), place(4), place(5), place(6));
        let now = match &self.clock {
            Some(_) => format!("{}::bigint", place(7)),
            None => NOW.to_owned(),
        };
        let expires = plus("c.fencing", &retain_);
        let sql = format!(
            "WITH idempotent_found AS MATERIALIZED (SELECT {columns} FROM {table} WHERE id={id_}), \
             idempotent_time AS MATERIALIZED (SELECT CASE WHEN NOT EXISTS (SELECT FROM idempotent_found) THEN \
             CASE WHEN pg_try_advisory_xact_lock({lock_}) THEN {now} END END AS n), \
             claimed AS MATERIALIZED (SELECT n AS fencing FROM idempotent_time WHERE n IS NOT NULL), \
             idempotent_effect AS (\n{effect}\nRETURNING 1), \
             idempotent_rows AS MATERIALIZED (SELECT count(*) AS n FROM idempotent_effect), \
             idempotent_record AS (INSERT INTO {table} ({columns}) \
             SELECT {id_},{VERSION},{name_},2,{owner_},c.fencing,1,c.fencing,NULL,{fingerprint_},{expires},c.fencing,c.fencing,\
             convert_to(e.n::text,'UTF8'),NULL,NULL FROM claimed AS c, idempotent_rows AS e RETURNING {columns}) \
             SELECT r.*, 1/(CASE WHEN e.n=0 OR EXISTS (SELECT FROM claimed) THEN 1 ELSE 0 END) FROM idempotent_rows AS e \
             LEFT JOIN (SELECT {columns},{now},1::bigint FROM idempotent_record \
             UNION ALL SELECT {columns},{now},0::bigint FROM idempotent_found) AS r ON true",
            effect = effect.sql.as_str(),
        );
        let fingerprint = request.fingerprint.map(|fingerprint| fingerprint.to_bytes().to_vec());
        let values: [Value; 6] = [
            id(&request.key).into(),
            owner(request.owner).into(),
            micros(retain).into(),
            fingerprint.into(),
            request.key.name().into(),
            self.dialect.lock(&request.key).into(),
        ];
        let query = sqlx::query_with(AssertSqlSafe(sql), effect.arguments.clone());
        let values = values.into_iter().chain(self.time().map(Value::from));
        values.map(PgValue::One).fold(query, PostgresDialect::bind)
    }
}
