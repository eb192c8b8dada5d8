//! The files of the job.
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf, absolute};

use anyhow::{anyhow, bail};

use crate::args::Args;
use crate::level::Level;

/// Store and effects.
#[derive(Debug)]
pub(crate) struct Places {
    /// The store's URL.
    pub(crate) store: String,
    /// The store's file, if it is one.
    file: Option<PathBuf>,
    /// The file of effects; none where they lie in the store's database.
    effects: Option<PathBuf>,
    /// The default folder, which the job may create.
    ours: PathBuf,
}

/// Returns the checkout's folder, also when started from another one.
fn home() -> &'static Path {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(""));
    if checkout.is_dir() { checkout } else { Path::new("") }
}

/// The default input.
pub(crate) fn webhooks() -> PathBuf {
    shown(&home().join("examples/data/webhooks.jsonl")).into()
}

/// Returns the path, relative to the current folder if it is below that folder.
pub(crate) fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

/// Returns whether the text is a URL: its scheme has only valid characters, and is longer than a drive letter. A URL
/// without its colon also counts, so that the error names the mistake.
fn is_url(store: &str) -> bool {
    [":", "//"].iter().filter_map(|end| store.split_once(end)).any(|(scheme, _)| {
        scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

fn is_server(url: &str) -> bool {
    url.contains("://") && !url.starts_with("sqlite:")
}

/// Returns the URL without user and password.
fn shown_url(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, place)| place))
}

/// Fit for a file's name: effects go with the store whose keys they are of.
fn name(url: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' };
    shown_url(url).chars().map(letter).collect()
}

impl Places {
    pub(crate) fn of(args: &Args) -> anyhow::Result<Self> {
        let ours = PathBuf::from(shown(&home().join("target/consume")));
        let (store, file, beside) = match args.store.as_deref() {
            None => (String::new(), Some(ours.join("store.db")), ours.join("effects.db")),
            Some("memory") => ("memory:".to_owned(), None, ours.join("memory.effects.db")),
            Some(url) if is_url(url) => {
                let path = url.strip_prefix("sqlite:").map(|rest| rest.strip_prefix("//").unwrap_or(rest));
                match path.filter(|path| !path.is_empty() && *path != ":memory:") {
                    Some(path) => (url.to_owned(), Some(path.into()), format!("{path}.effects.db").into()),
                    None if is_server(url) => (url.to_owned(), None, ours.join(format!("{}.effects.db", name(url)))),
                    None => (url.to_owned(), None, ours.join("memory.effects.db")),
                }
            }
            Some("") => bail!("--store is empty: give `memory`, a path or a URL"),
            Some(path) => (String::new(), Some(path.into()), format!("{path}.effects.db").into()),
        };
        let store = match &file {
            Some(file) if store.is_empty() => format!("sqlite://{}", file.display()),
            _ => store,
        };
        let effects = match (args.level, &args.effects) {
            (Level::Marker, given) => Some(given.clone().unwrap_or(beside)),
            (Level::Transactional, None) => None,
            (Level::Transactional, Some(_)) => bail!(
                "--effects does not go with --level transactional: effects lie in the store's database then, in the table \
                 `effects`"
            ),
        };
        if let (Some(file), Some(effects)) = (&file, &effects)
            && same(file, effects)
        {
            bail!("store and effects are both {}: give the effects a file of their own", effects.display());
        }
        Ok(Self { store, file, effects, ours })
    }

    /// Makes the default folder, and room for a fresh start.
    pub(crate) fn prepare(&self, fresh: bool) -> anyhow::Result<()> {
        if self.files().any(|file| file.starts_with(&self.ours)) {
            fs::create_dir_all(&self.ours).map_err(|error| anyhow!("cannot make {}: {error}", self.ours.display()))?;
        }
        if fresh {
            self.files().try_for_each(check)?;
            self.files().try_for_each(remove)?;
        }
        Ok(())
    }

    /// A store that ends with the process knows no key of an earlier one: the effects of that one would pass for
    /// duplicates.
    pub(crate) fn forgets(&self) -> bool {
        self.file.is_none() && (self.store == "memory:" || self.store.starts_with("sqlite:"))
    }

    /// Returns whether a fresh start removes single keys, because other programs share the store.
    pub(crate) fn is_shared(&self) -> bool {
        self.file.is_none() && !self.forgets()
    }

    /// Returns the name of the store for the summary.
    pub(crate) fn store_shown(&self) -> String {
        match &self.file {
            Some(file) => file.display().to_string(),
            None if self.is_shared() => shown_url(&self.store),
            None => "in memory, gone now".to_owned(),
        }
    }

    /// The file of effects; none where they lie in the store's database.
    pub(crate) fn effects(&self) -> Option<&Path> {
        self.effects.as_deref()
    }

    /// The store's file, if it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub(crate) fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the name of the effects for the summary.
    pub(crate) fn effects_shown(&self) -> String {
        self.effects.as_ref().map_or_else(|| "in the store's database".to_owned(), |path| path.display().to_string())
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        self.file.as_deref().into_iter().chain(self.effects())
    }
}

fn same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).or_else(|_| absolute(path)).unwrap_or_else(|_| path.to_owned());
    real(a) == real(b)
}

/// Only a database is removed: `--store notes.txt --fresh` must not cost the notes.
fn check(path: &Path) -> anyhow::Result<()> {
    const MAGIC: &[u8] = b"SQLite format 3\0";
    let mut start = Vec::new();
    match fs::File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut start)) {
        Ok(0) => Ok(()),
        Ok(_) if start == MAGIC => Ok(()),
        Ok(_) => bail!("--fresh does not remove {}: it is no SQLite database", path.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => bail!("--fresh cannot remove {}: {error}", path.display()),
    }
}

/// Removes a database, including the auxiliary files of SQLite.
fn remove(path: &Path) -> anyhow::Result<()> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                bail!("--fresh cannot remove {}: {error}", Path::new(&file).display())
            }
            _ => {}
        }
    }
    Ok(())
}
