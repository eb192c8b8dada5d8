//! Statements for the order tables of streams, one row for each stream. [`OrderDialect`] has the differences between dialects.
use idempotent_core::{OrderTablePage, Timestamp};

use crate::table::Table;

/// The number of streams that a purge statement scans, and the maximum number that it removes.
pub(crate) const STEP: i64 = 500;

/// A page of order tables of which the expired ones are left out.
#[derive(Debug, Default)]
pub(crate) struct OrderPage {
    page: OrderTablePage,
    rows: usize,
}

impl OrderPage {
    /// The maximum number of tables of a page.
    pub(crate) const MOST: usize = 1_000;

    /// Adds a row: its id, its table, when it expires, and the time of the statement.
    pub(crate) fn add(&mut self, id: &[u8], table: Vec<u8>, until: i64, now: i64) {
        self.rows += 1;
        self.page.now = Timestamp(now.unsigned_abs());
        self.page.next = id.try_into().ok().map(u128::from_be_bytes);
        if until > now {
            self.page.tables.push(table.into());
        }
    }

    /// Returns the page. There are no more rows after fewer than `limit`.
    pub(crate) fn finish(self, limit: usize) -> OrderTablePage {
        let next = self.page.next.filter(|_| self.rows == limit);
        OrderTablePage { next, ..self.page }
    }
}

/// The differences between dialects.
pub(crate) struct OrderDialect<'a> {
    /// The character before a parameter's number.
    pub(crate) mark: char,
    /// The clock, or the place it is bound at.
    pub(crate) now: &'a dyn Fn(usize) -> String,
    /// The saturating sum of a time and a duration.
    pub(crate) plus: &'a dyn Fn(&str, &str) -> String,
    /// The start and the end of an insertion that ignores existing rows.
    pub(crate) add: (&'a str, &'a str),
}

/// The texts. 1 is the stream's hash.
#[derive(Clone, Debug)]
pub(crate) struct OrderSql {
    /// Returns one row: the order table, if there is one, and the time.
    pub(crate) read: String,
    /// 2 order table, 3 retention. Writes one row if there was none.
    pub(crate) add: String,
    /// 4 the expected order table. Writes one row if it matches.
    pub(crate) compare_and_swap: String,
    /// 1 after this id, 2 streams looked at: each id, and how long it is past its time
    pub(crate) scan: String,
    /// 1 after this id, 2 up to this one
    pub(crate) purge: String,
    /// 1 after this id, 2 limit: each id, its order table, when it expires, and the time
    pub(crate) browse: String,
}

impl OrderSql {
    pub(crate) fn new(table: &Table, dialect: &OrderDialect<'_>) -> Self {
        let lines = table.quoted_beside("lines");
        let OrderDialect { mark: p, now, plus, add: (before, behind) } = dialect;
        let until = |clock| plus(&now(clock), &format!("{p}3"));
        Self {
            read: format!("SELECT (SELECT line FROM {lines} WHERE id={p}1), {}", now(2)),
            add: format!("{before} INTO {lines} (id,line,until_at) VALUES ({p}1,{p}2,{}){behind}", until(4)),
            compare_and_swap: format!(
                "UPDATE {lines} SET line={p}2, until_at={} WHERE id={p}1 AND line={p}4",
                until(5)
            ),
            scan: format!("SELECT id, {}-until_at FROM {lines} WHERE id>{p}1 ORDER BY id LIMIT {p}2", now(3)),
            browse: format!("SELECT id, line, until_at, {} FROM {lines} WHERE id>{p}1 ORDER BY id LIMIT {p}2", now(3)),
            purge: format!("DELETE FROM {lines} WHERE id>{p}1 AND id<={p}2 AND until_at<={}", now(3)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_leaves_expired_tables_out_and_ends_after_fewer_rows_than_its_limit() {
        let page = |limit| {
            let mut page = OrderPage::default();
            for (id, until) in [(1_u128, 11), (2, 10), (3, 12)] {
                page.add(&id.to_be_bytes(), vec![id as u8], until, 10);
            }
            page.finish(limit)
        };
        let full = page(3);
        let tables: Vec<_> = full.tables.iter().map(|table| table.to_vec()).collect();
        assert_eq!((tables, full.now, full.next), (vec![vec![1], vec![3]], Timestamp(10), Some(3)));
        assert_eq!(page(4).next, None);
    }
}
