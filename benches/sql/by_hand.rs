//! The floor: two statements with the same guards (MariaDB: without), on the store's own layout.
use async_trait::async_trait;

/// The lease, the retention of failures and the retention of the executor's defaults, in µs.
pub const LEASE: i64 = 30_000_000;
pub const MEMORY: i64 = 86_400_000_000;
pub const RETENTION: i64 = 7 * 86_400_000_000;
/// The version of the layout, and the name of a key.
pub const NAME: &str = "idempotent:mq:bench";

#[async_trait]
pub trait ByHand: Send + Sync {
    /// Claims and completes.
    async fn cycle(&self, number: u64);

    /// Reads a consumed key.
    async fn look(&self, number: u64);

    /// Writes one step of a run.
    async fn step(&self, number: u64);

    /// Writes `rows` expired records into the store's table.
    async fn fill(&self, rows: usize);
}

/// Returns an id that is distributed like a hash.
pub fn id(number: u64) -> [u8; 16] {
    u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes()
}

/// The value of a step.
pub const VALUE: &[u8] = b"\"reserved\"";

/// The differences between the databases.
pub struct Dialect {
    pub now: &'static str,
    pub greatest: &'static str,
    pub table: &'static str,
}

impl Dialect {
    /// Returns the claim: $1 id, $2 name, $3 owner, $4 lease, $5 retention of failures. The statement returns the
    /// fencing token, or no row if the key is not granted.
    pub fn claim(&self) -> String {
        let Self { now, greatest, table } = self;
        format!(
            "INSERT INTO {table} AS r (id,v,name,state,owner,fencing,attempt,until_at,expires_at,first_seen,updated_at) \
             SELECT $1,1,$2,1,$3,n,1,n+$4,n+$4+$5,n,n FROM (SELECT {now} AS n) AS t WHERE true \
             ON CONFLICT (id) DO UPDATE SET state=1, owner=excluded.owner, fencing={greatest}(r.fencing+1,excluded.fencing), \
             attempt=r.attempt+1, until_at=excluded.until_at, expires_at=excluded.expires_at, taken_over=r.fencing, \
             updated_at=excluded.updated_at WHERE r.v=1 AND (r.expires_at<=excluded.updated_at \
             OR (r.state IN (0,1) AND r.until_at<=excluded.updated_at)) RETURNING fencing"
        )
    }

    /// Returns the completion: $1 id, $2 owner, $3 fencing token, $4 retention.
    pub fn complete(&self) -> String {
        let Self { now, table, .. } = self;
        format!(
            "UPDATE {table} SET state=2, expires_at={now}+$4, taken_over=NULL, display=NULL, updated_at={now} \
             WHERE id=$1 AND owner=$2 AND fencing=$3 AND v=1 AND state=1 AND expires_at>{now}"
        )
    }

    pub fn look(&self) -> String {
        format!("SELECT * FROM {} WHERE id=$1", self.table)
    }

    /// Returns the record of a step: $1 id, $2 name, $3 value.
    pub fn step(&self) -> String {
        let Self { now, table, .. } = self;
        format!("INSERT INTO {table}_steps (id,name,begun,place,state,value) VALUES ($1,$2,{now},0,1,$3)")
    }
}
