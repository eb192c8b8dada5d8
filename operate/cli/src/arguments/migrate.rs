//! The arguments of the commands for migrations.
use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Compares the tables with the migrations of this version. Ends with exit code 3 if migrations are missing.
    Status {
        #[command(flatten)]
        division: Division,
    },
    /// Applies the missing migrations.
    Up {
        /// Asks for no confirmation.
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        division: Division,
    },
    /// Prints the migrations as SQL text for an administrator. Needs no connection.
    Sql {
        /// The version that the database has.
        #[arg(long, default_value_t = 0, value_name = "VERSION")]
        from: u32,
        /// The dialect [default: that of the store's URL].
        #[arg(long)]
        dialect: Option<Dialect>,
        #[command(flatten)]
        division: Division,
    },
}

/// The division of new tables.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Division {
    /// The hash partitions of new tables in PostgreSQL, from 2 to 128. Refuses an existing table with another number [default:
    /// no partitions for new tables, any number for existing ones].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) partitions: Option<u16>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Dialect {
    Mysql,
    Postgres,
    Sqlite,
}
