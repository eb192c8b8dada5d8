//! The search for records, in the order of their ids. Each dialect sends the statements, and shares the rest.
//!
//! A step has two short statements. The first one examines up to 32 records and returns their number and the last id. The
//! second one reads the selected records up to this id, and is left out if there are none. Records that are inserted in
//! between are examined in addition, and none is skipped.
use idempotent_core::{KeyFilter, PageLimits, RecordEntry, RecordPage, StoreError, Timestamp};

use crate::row::{self, COLUMNS, Cells, Column, code, corrupt, micros};

/// Records of one step. With 10 M records, a step of 100 takes 1 ms on PostgreSQL. A claim that waits for the processor of a step
/// waits longer for a longer step.
const STEP: usize = 32;
/// The bit of unreadable records in the sum of states.
const UNREADABLE: i64 = 32;

/// The differences between the dialects.
pub(crate) struct SearchDialect<'a> {
    pub(crate) mark: char,
    pub(crate) now: &'a dyn Fn(usize) -> String,
    pub(crate) sound: String,
    /// The column `name` as bytes.
    pub(crate) name: &'a str,
    /// The last id of several rows.
    pub(crate) last: &'a str,
    /// The function of the greater of two numbers.
    pub(crate) greater: &'a str,
    /// The conversion of a number to 64 bits with a sign.
    pub(crate) number: (&'a str, &'a str),
}

/// The length of all keys. An id of another length is not one of a key. PostgreSQL assumes that two inequalities select more
/// rows than an equality, and reads the primary key instead of the whole table.
const BY_LENGTH: &str = "length(id)>15 AND octet_length(id)<17";

/// The statements. Parameters that both have: 1 after this id; 3 the sum of the states, 1 for the state with the code 0; 4
/// smallest attempt; 5 and 6 shortest and longest age; 7 beginning of the name; 8 whether only orphaned keys.
#[derive(Clone, Debug)]
pub(crate) struct SearchSql {
    /// 2 number of records, 9 clock. The last id, the number of records, the number of selected ones, the time.
    pub(crate) examine: String,
    /// 2 number of selected records, 9 the last id, 10 clock. The columns without the result, the size of the result, the time,
    /// the rank of the record.
    pub(crate) read: String,
}

impl SearchSql {
    /// Creates the statements for a table, whose name is quoted.
    pub(crate) fn new(table: &str, dialect: &SearchDialect<'_>) -> Self {
        let SearchDialect { mark, last, number: (cast, signed), .. } = dialect;
        let (selected, now) = (dialect.selected(), dialect.now);
        let without_result = COLUMNS.map(|column| if column == "value" { "NULL" } else { column }).join(",");
        let inner = COLUMNS.map(|column| if column == "value" { "length(value) AS size" } else { column }).join(",");
        let examine = format!(
            "SELECT {last}, count(*), count(CASE WHEN hit THEN 1 END), coalesce(max(n),{now}) \
             FROM (SELECT id, n, {selected} AS hit FROM {table}, (SELECT {now} AS n) AS t \
             WHERE id>{mark}1 AND {BY_LENGTH} ORDER BY id LIMIT {mark}2) AS step",
            now = now(9),
        );
        let read = format!(
            "SELECT {without_result},{cast}size{signed},n,{cast}nr{signed} \
             FROM (SELECT {inner}, n, {selected} AS hit, row_number() OVER (ORDER BY id) AS nr \
             FROM {table}, (SELECT {now} AS n) AS t WHERE id>{mark}1 AND id<={mark}9 AND {BY_LENGTH}) AS step \
             WHERE hit ORDER BY id LIMIT {mark}2",
            now = now(10),
        );
        Self { examine, read }
    }
}

impl SearchDialect<'_> {
    /// Returns the condition of records that the filter may select, or that cannot be read.
    fn selected(&self) -> String {
        let Self { mark, sound, name, greater, .. } = self;
        format!(
            "(substr({name},1,length({mark}7))={mark}7 AND CASE WHEN {sound} THEN ((1<<state)&{mark}3)<>0 AND expires_at>n \
             AND attempt>={mark}4 AND {greater}(n-updated_at,0) BETWEEN {mark}5 AND {mark}6 \
             AND ({mark}8=0 OR state=1 AND until_at<n) ELSE {mark}3>={UNREADABLE} END)"
        )
    }
}

/// The parameters 3 to 8.
#[derive(Clone, Debug)]
pub(crate) struct FilterValues {
    pub(crate) states: i64,
    pub(crate) min_attempt: i64,
    pub(crate) shortest: i64,
    pub(crate) longest: i64,
    pub(crate) prefix: Vec<u8>,
    pub(crate) orphaned: i64,
}

impl FilterValues {
    fn new(filter: &KeyFilter) -> Self {
        let bit = |code: i64| if (0..5).contains(&code) { 1 << code } else { 0 };
        let unreadable = if filter.selects_any_unreadable() { UNREADABLE } else { 0 };
        Self {
            states: filter.states.iter().map(|state| bit(code(*state))).fold(unreadable, |states, bit| states | bit),
            min_attempt: filter.min_attempt.into(),
            shortest: filter.older_than.map_or(0, micros),
            longest: filter.newer_than.map_or(i64::MAX, micros),
            prefix: filter.name_prefix().into_bytes(),
            orphaned: filter.orphaned.into(),
        }
    }
}

/// The answer of the first statement.
#[derive(Clone, Debug)]
pub(crate) struct ExaminedRows {
    pub(crate) last: Option<Vec<u8>>,
    pub(crate) rows: i64,
    pub(crate) selected: i64,
    pub(crate) now: i64,
}

/// A page in progress.
pub(crate) struct SearchedPage<'a> {
    filter: &'a KeyFilter,
    values: FilterValues,
    keys: usize,
    budget: usize,
    /// Every id is greater than the empty byte string.
    after: Vec<u8>,
    is_last: bool,
    page: RecordPage,
}

impl<'a> SearchedPage<'a> {
    pub(crate) fn new(filter: &'a KeyFilter, after: Option<u128>, limits: PageLimits) -> Self {
        let limits = limits.bounded();
        Self {
            filter,
            values: FilterValues::new(filter),
            keys: limits.keys,
            budget: limits.examined,
            after: after.map_or_else(Vec::new, |id| id.to_be_bytes().to_vec()),
            is_last: false,
            page: RecordPage::default(),
        }
    }

    pub(crate) fn values(&self) -> FilterValues {
        self.values.clone()
    }

    pub(crate) fn after(&self) -> Vec<u8> {
        self.after.clone()
    }

    /// Returns the number of records that the next step examines, or `None` if the page is complete.
    pub(crate) fn rows(&self) -> Option<i64> {
        let left = self.budget.saturating_sub(self.page.examined);
        let is_complete = self.is_last || left == 0 || self.room() == 0;
        (!is_complete).then(|| left.min(STEP) as i64)
    }

    /// Returns the number of records for which the page has room.
    pub(crate) fn room(&self) -> i64 {
        self.keys.saturating_sub(self.page.len()) as i64
    }

    /// Takes the answer of the first statement, which was asked for `asked` records. Returns the last id if records have to be
    /// read.
    pub(crate) fn examined(&mut self, asked: i64, seen: &ExaminedRows) -> Option<Vec<u8>> {
        self.page.now = Timestamp(seen.now.unsigned_abs());
        let last = seen.last.clone();
        if let Some(last) = last.clone().filter(|_| seen.selected > 0) {
            return Some(last);
        }
        self.advance(asked, seen);
        None
    }

    fn advance(&mut self, asked: i64, seen: &ExaminedRows) {
        self.page.examined += usize::try_from(seen.rows).unwrap_or_default();
        self.is_last = seen.rows < asked;
        if let Some(last) = &seen.last {
            self.after.clone_from(last);
        }
    }

    /// Takes the answer of the second statement, which was asked for as many records as there was room for.
    pub(crate) fn read(&mut self, asked: i64, seen: &ExaminedRows, rows: &[impl Cells]) -> Result<(), StoreError> {
        let int = |row: &_, at: usize| Cells::int(row, at).map_err(|_| corrupt(Column::Value, "has no size"));
        let is_full = rows.len() as i64 >= self.room();
        let mut rank = 0;
        for row in rows {
            self.page.now = Timestamp(int(row, COLUMNS.len() + 1)?.unwrap_or_default().unsigned_abs());
            rank = int(row, COLUMNS.len() + 2)?.unwrap_or_default();
            let id = row::id(row)?.ok_or_else(|| corrupt(Column::Id, "is missing"))?;
            self.after = id.to_be_bytes().to_vec();
            let key = row::lossy_key(row, id);
            let size = int(row, COLUMNS.len())?.map(i64::unsigned_abs);
            let record =
                row::key(row).and_then(|key| Ok(RecordEntry::new(key, row::record(row)?).with_result_bytes(size)));
            self.page.add(self.filter, key, record)?;
        }
        if is_full {
            // The last one is the last record of the page. Others may follow in this step.
            self.page.examined += usize::try_from(rank.clamp(0, seen.rows)).unwrap_or_default();
        } else {
            self.advance(asked, seen);
        }
        Ok(())
    }

    pub(crate) fn page(mut self) -> RecordPage {
        let last = <[u8; 16]>::try_from(&self.after[..]).ok().map(u128::from_be_bytes);
        self.page.next = last.filter(|_| !self.is_last);
        self.page
    }
}
