//! Statements for the order tables of streams, one row for each stream. [`OrderDialect`] has the differences between dialects.
use crate::table::Table;

/// The number of streams that a purge statement scans, and the maximum number that it removes.
pub(crate) const STEP: i64 = 500;

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
            purge: format!("DELETE FROM {lines} WHERE id>{p}1 AND id<={p}2 AND until_at<={}", now(3)),
        }
    }
}
