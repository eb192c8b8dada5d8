//! The statements about the steps of runs.
use super::sql::StatementBuilder;
use crate::server::{Statement, StepStatements, guard};
use crate::steps::YOUNG;
use crate::table::Table;

/// Creates the statements, which correspond to those of [`StepsSql`](crate::steps::StepsSql).
pub(super) fn steps(maker: &StatementBuilder, table: &Table) -> StepStatements {
    let (steps, records) = (table.quoted_steps(), table.quoted());
    let held = |clock| {
        let now = maker.now(clock);
        format!("FROM {records} AS r WHERE {}", guard(&now, "$1", "$2", "$3"))
    };
    let goes_on = format!("({steps}.begun<>VALUES(begun) OR {steps}.state<VALUES(state))");
    let set = |column: &str| format!("{column}=IF({goes_on},VALUES({column}),{steps}.{column})");
    // `begun` and `state` are the result: they are assigned last, and this order misses no row.
    let sets = ["place", "value"].map(set).join(", ");
    let state = format!("state=IF({steps}.begun<>VALUES(begun),VALUES(state),GREATEST({steps}.state,VALUES(state)))");
    let note = |clock| {
        format!(
            "INSERT INTO {steps} (id,name,begun,place,state,value) SELECT $1,$4,r.first_seen,$5,$6,$7 {} \
             LOCK IN SHARE MODE ON DUPLICATE KEY UPDATE {sets}, {state}, begun=VALUES(begun)",
            held(clock)
        )
    };
    let read = format!(
        "SELECT s.name, s.place, s.state, s.value FROM (SELECT r.id AS id, r.first_seen AS begun {}) AS h \
         LEFT JOIN {steps} AS s ON s.id=h.id AND s.begun=h.begun ORDER BY s.place",
        held(4)
    );
    let orphan = |clock| {
        let now = maker.now(clock);
        format!(
            "s.begun<{now}-{YOUNG} AND (SELECT 1 FROM {records} AS r WHERE r.id=s.id AND r.first_seen=s.begun) IS NULL"
        )
    };
    let scan = format!(
        "WITH step AS (SELECT id, begun FROM {steps} WHERE id>$1 ORDER BY id LIMIT $2), \
         gone AS (SELECT DISTINCT s.id FROM step AS s WHERE {} ORDER BY s.id LIMIT $3) \
         SELECT (SELECT CASE WHEN count(*)=$2 THEN max(id) END FROM step), (SELECT count(*) FROM gone), \
         (SELECT max(id) FROM gone)",
        orphan(4)
    );
    let purge = format!("DELETE s FROM {steps} AS s WHERE s.id>$1 AND s.id<=$2 AND {}", orphan(3));
    StepStatements {
        note: Statement::marks(&maker.writing(&note(8))),
        note_in: Statement::marks(&maker.in_a_transaction().writing(&note(9))),
        read: Statement::marks(&read),
        scan: Statement::marks(&scan),
        purge: Statement::marks(&maker.writing(&purge)),
    }
}
