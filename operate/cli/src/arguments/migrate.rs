//! The arguments of the commands for migrations.
use clap::{Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Compares the tables with the migrations of this version. Ends with exit code 3 if migrations are missing.
    Status,
    /// Applies the missing migrations.
    Up {
        /// Asks for no confirmation.
        #[arg(short, long)]
        yes: bool,
    },
    /// Prints the migrations as SQL text for an administrator. Needs no connection.
    Sql {
        /// The version that the database has.
        #[arg(long, default_value_t = 0, value_name = "VERSION")]
        from: u32,
        /// The dialect [default: that of the store's URL].
        #[arg(long)]
        dialect: Option<Dialect>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Dialect {
    Mysql,
    Postgres,
    Sqlite,
}
