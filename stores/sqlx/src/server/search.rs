//! The search for records, with the statements of [`SearchSql`](crate::search::SearchSql).
use idempotent_core::{KeyFilter, PageLimits, RecordPage, StoreError};

use super::driver::Driver;
use super::error::Phase;
use super::runner::settled;
use super::statement::BoundStatement;
use super::store::ServerStore;
use crate::row::Cells;
use crate::search::{ExaminedRows, FilterValues, SearchedPage};

impl<D: Driver> ServerStore<D> {
    pub(crate) async fn search(
        &self,
        filter: &KeyFilter,
        after: Option<u128>,
        limits: PageLimits,
    ) -> Result<RecordPage, StoreError> {
        let mut page = SearchedPage::new(filter, after, limits);
        while let Some(rows) = page.rows() {
            let seen = self.examine(&page, rows).await?;
            let Some(last) = page.examined(rows, &seen) else { continue };
            let read = BoundStatement::new(&self.texts.read).bind(page.after()).bind(page.room());
            let read = self.timed(with_values(read, page.values()).bind(last));
            let found = settled(self.runner.all(read).await?)?;
            page.read(rows, &seen, &found)?;
        }
        Ok(page.page())
    }

    async fn examine(&self, page: &SearchedPage<'_>, rows: i64) -> Result<ExaminedRows, StoreError> {
        let examine = BoundStatement::new(&self.texts.examine).bind(page.after()).bind(rows);
        let row = settled(self.runner.first(self.timed(with_values(examine, page.values()))).await?)?;
        let failed = |error| self.runner.place.error::<D>(Phase::Executing, error);
        let row = row.ok_or_else(|| failed(sqlx::Error::RowNotFound))?;
        Ok(ExaminedRows {
            last: row.bytes(0).map_err(failed)?.map(<[u8]>::to_vec),
            rows: self.number(&row, 1)?,
            selected: self.number(&row, 2)?,
            now: self.number(&row, 3)?,
        })
    }
}

fn with_values<D: Driver>(ask: BoundStatement<D>, values: FilterValues) -> BoundStatement<D> {
    let FilterValues { states, min_attempt, shortest, longest, prefix, orphaned } = values;
    ask.bind(states).bind(min_attempt).bind(shortest).bind(longest).bind(prefix).bind(orphaned)
}
