//! The order tables of streams, in a table beside the records: one row each. Its statements, the same for every dialect
//! but for what [`OrderDialect`] says.
use crate::table::Table;

/// Streams looked at in one statement of a purge, and the most that are removed in one.
pub(crate) const STEP: i64 = 500;

/// What differs.
pub(crate) struct OrderDialect<'a> {
    /// What stands before a parameter's number.
    pub(crate) mark: char,
    /// The clock, or the place it is bound at.
    pub(crate) now: &'a dyn Fn(usize) -> String,
    /// The sum of a time and a span, which saturates.
    pub(crate) plus: &'a dyn Fn(&str, &str) -> String,
    /// Before and behind an insertion that leaves alone what is there.
    pub(crate) add: (&'a str, &'a str),
}

/// The texts. 1 is the stream's hash.
#[derive(Clone, Debug)]
pub(crate) struct OrderSql {
    /// One row: the line, if there is one, and the time.
    pub(crate) read: String,
    /// 2 line, 3 how long it is kept. One row where there was none.
    pub(crate) add: String,
    /// 4 what is there. One row where it was.
    pub(crate) compare_and_swap: String,
    /// 1 behind this id, 2 streams looked at: each id, and how long it is past its time
    pub(crate) scan: String,
    /// 1 behind this id, 2 up to this one
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
