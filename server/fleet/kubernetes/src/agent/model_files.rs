//! Files of models from their sources, in the folder of the server's repository.
//!
//! ```text
//! repository/
//!   NAME                       link to the files of a model with a source
//!   .sources/NAME.json         the source that the link is of
//!   .sources/NAME-HASH/        local copy of one source, as model-store keeps it
//! ```
//!
//! The server follows links that stay inside its repository, and ignores names that start with a dot.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use model_store::{Digest, Limits, Location, Mirror, Silent, Snapshot};
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;

use super::node::{Listing, Node, NodeError};
use crate::resources::model::Source;

/// Folder of local copies.
const SOURCES: &str = ".sources";
/// Hexadecimal digits of the hash in the name of a copy.
const HASH_DIGITS: usize = 16;

/// A server whose models may have sources.
#[derive(Clone, Debug)]
pub struct WithSources<N> {
    /// The server.
    pub node: N,
    /// The folder of its repository, if this agent may write there.
    pub files: Option<ModelFiles>,
}

impl<N: Node + Clone> Node for WithSources<N> {
    async fn list(&self) -> Result<Listing, NodeError> {
        let listing = self.node.list().await?;
        let Some(files) = self.files.clone() else { return Ok(listing) };
        let sources = spawn_blocking(move || files.placed()).await;
        let sources = sources.map_err(|error| NodeError(error.to_string()))?;
        Ok(Listing { sources: sources.map_err(|error| NodeError(error.to_string()))?, ..listing })
    }

    async fn load(&self, model: &str, source: Option<&Source>) -> Result<(), NodeError> {
        let Some(source) = source else { return self.node.load(model, None).await };
        let files = self.files.as_ref().ok_or_else(|| {
            let missing = "the agent has no folder for files: expected `--repository`, the folder of the server's repository";
            NodeError(format!("source.uri: {missing}"))
        })?;
        files.place(model, source).await?;
        self.node.load(model, Some(source)).await?;
        let (files, model, source) = (files.clone(), model.to_owned(), source.clone());
        let confirmed = spawn_blocking(move || files.confirm(&model, &source)).await;
        let confirmed = confirmed.map_err(|error| NodeError(error.to_string()))?;
        confirmed.map_err(|error| {
            NodeError(format!("the files of the model are loaded, but not recorded: {error}"))
        })
    }

    async fn unload(&self, model: &str) -> Result<(), NodeError> {
        self.node.unload(model).await
    }
}

/// The folder of a server's repository, in which an agent places the files of models.
#[derive(Clone, Debug)]
pub struct ModelFiles {
    repository: PathBuf,
    options: BTreeMap<String, String>,
}

impl ModelFiles {
    /// A folder, and options of the sources such as `endpoint`, `region` and `allow_http`. Credentials come from the environment.
    #[must_use]
    pub fn new(repository: PathBuf, options: BTreeMap<String, String>) -> Self {
        Self { repository, options }
    }

    fn sources(&self) -> PathBuf {
        self.repository.join(SOURCES)
    }

    fn record(&self, model: &str) -> PathBuf {
        self.sources().join(format!("{model}.json"))
    }

    /// Sources of the models whose files were placed and then loaded.
    fn placed(&self) -> io::Result<BTreeMap<String, Source>> {
        let entries = match fs::read_dir(self.sources()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries?,
        };
        let mut placed = BTreeMap::new();
        for entry in entries {
            let name = entry?.file_name();
            let Some(model) = name.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
            // A record that cannot be read makes the agent place the files again.
            let read = fs::read(self.record(model)).ok().and_then(|text| serde_json::from_slice(&text).ok());
            if let Some(source) = read {
                placed.insert(model.to_owned(), source);
            }
        }
        Ok(placed)
    }

    /// Copies the files of a source, compares their digest, and makes the name of the model a link to them. What was placed before
    /// stays in place if that fails.
    async fn place(&self, model: &str, source: &Source) -> Result<(), NodeError> {
        let told = |error: &dyn std::fmt::Display| NodeError(format!("source.uri: {error}"));
        let location = Location::parse(&source.uri, &self.options).map_err(|error| told(&error))?;
        let copy = self.sources().join(copy_name(model, source));
        fs::create_dir_all(&copy).map_err(|error| told(&format!("{}: {error}", copy.display())))?;
        let mirror = Mirror::open(&location, &copy, Limits::default()).map_err(|error| told(&error))?;
        let wanted =
            |snapshot: &Snapshot| source.digest.as_ref().is_none_or(|wanted| *wanted == digest(snapshot));
        let present = mirror.current().map_err(|error| told(&error))?;
        let snapshot = match present.filter(|snapshot| source.digest.is_some() && wanted(snapshot)) {
            Some(snapshot) => snapshot,
            None => {
                mirror.refresh(&Silent).await.map_err(|error| told(&error))?;
                let fresh = mirror.current().map_err(|error| told(&error))?;
                fresh.ok_or_else(|| told(&"the local copy was removed from outside"))?
            }
        };
        if !wanted(&snapshot) {
            let (wanted, found) = (source.digest.as_deref().unwrap_or_default(), digest(&snapshot));
            return Err(NodeError(format!(
                "source.digest: the files at {} have {found}: expected {wanted}",
                location.url()
            )));
        }
        self.link(model, snapshot.path()).map_err(|error| told(&error))
    }

    fn link(&self, model: &str, to: &Path) -> io::Result<()> {
        let link = self.repository.join(model);
        match fs::symlink_metadata(&link) {
            Ok(found) if !found.is_symlink() => {
                let there = format!(
                    "{} exists and is not a link of this agent: remove it, or the source",
                    link.display()
                );
                return Err(io::Error::new(ErrorKind::AlreadyExists, there));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let root = self.repository.canonicalize()?;
        let inside = to.strip_prefix(&root).unwrap_or(to);
        // A link is replaced by renaming another one over it, so that the server always finds one of them.
        let new = self.sources().join(format!("{model}.new"));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => symlink(inside, &new)?,
        }
        fs::rename(new, link)
    }

    /// Notes that the server has loaded the files of a source, and removes the copies of other sources of the model.
    fn confirm(&self, model: &str, source: &Source) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(source)?;
        let new = NamedTempFile::new_in(self.sources())?;
        fs::write(new.path(), text)?;
        new.as_file().sync_all()?;
        new.persist(self.record(model)).map_err(|error| error.error)?;
        let kept = copy_name(model, source);
        for entry in fs::read_dir(self.sources())? {
            let entry = entry?;
            let name = entry.file_name();
            let is_other = name.to_str().and_then(|name| name.rsplit_once('-')).is_some_and(|(of, hash)| {
                of == model && hash.len() == HASH_DIGITS && name.to_str() != Some(&kept)
            });
            if is_other && entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Name of the folder of a copy. Files of another digest are another copy, so that those in use stay until the new ones are complete.
fn copy_name(model: &str, source: &Source) -> String {
    let text = format!("{}\n{}", source.uri, source.digest.as_deref().unwrap_or_default());
    let mut hash = Digest::of(text.as_bytes()).to_string();
    hash.truncate(HASH_DIGITS);
    format!("{model}-{hash}")
}

fn digest(snapshot: &Snapshot) -> String {
    format!("sha256:{}", snapshot.manifest().digest())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A server that notes what it was asked for, and can refuse loads.
    #[derive(Clone, Default)]
    struct Noting(Arc<Mutex<(Vec<String>, bool)>>);

    impl Node for Noting {
        async fn list(&self) -> Result<Listing, NodeError> {
            Ok(Listing::default())
        }

        async fn load(&self, model: &str, _source: Option<&Source>) -> Result<(), NodeError> {
            let mut state = self.0.lock().unwrap();
            state.0.push(model.to_owned());
            if state.1 { Err(NodeError("no memory".to_owned())) } else { Ok(()) }
        }

        async fn unload(&self, _model: &str) -> Result<(), NodeError> {
            Ok(())
        }
    }

    struct World {
        server: Noting,
        node: WithSources<Noting>,
        _folders: tempfile::TempDir,
        repository: PathBuf,
        store: PathBuf,
    }

    impl World {
        fn new() -> Self {
            let folders = tempfile::tempdir().unwrap();
            let root = folders.path().canonicalize().unwrap();
            let (repository, store) = (root.join("repository"), root.join("store"));
            fs::create_dir_all(&repository).unwrap();
            fs::create_dir_all(store.join("m/1")).unwrap();
            fs::write(store.join("m/1/model.onnx"), "first").unwrap();
            fs::write(store.join("m/config.pbtxt"), "max_batch_size: 4").unwrap();
            let (server, files) = (Noting::default(), ModelFiles::new(repository.clone(), BTreeMap::new()));
            let node = WithSources { node: server.clone(), files: Some(files) };
            Self { server, node, _folders: folders, repository, store }
        }

        fn source(&self, digest: Option<&str>) -> Source {
            let uri = format!("file://{}", self.store.join("m").display());
            Source { uri, digest: digest.map(str::to_owned) }
        }

        fn served(&self) -> String {
            fs::read_to_string(self.repository.join("m/1/model.onnx")).unwrap()
        }

        async fn load(&self, source: &Source) -> Result<(), String> {
            self.node.load("m", Some(source)).await.map_err(|error| error.to_string())
        }
    }

    /// As `find . -type f -printf '%P\n' | LC_ALL=C sort | xargs sha256sum | sha256sum` says.
    fn digest_of(files: &[(&str, &str)]) -> String {
        let line = |(path, content): &(&str, &str)| format!("{}  {path}\n", Digest::of(content.as_bytes()));
        let lines: String = files.iter().map(line).collect();
        format!("sha256:{}", Digest::of(lines.as_bytes()))
    }

    #[tokio::test]
    async fn files_are_placed_before_the_load_and_replaced_by_those_of_another_digest() {
        let world = World::new();
        let first = digest_of(&[("1/model.onnx", "first"), ("config.pbtxt", "max_batch_size: 4")]);
        let source = world.source(Some(&first));
        world.load(&source).await.unwrap();
        assert_eq!((world.served(), world.server.0.lock().unwrap().0.len()), ("first".to_owned(), 1));
        assert_eq!(world.node.list().await.unwrap().sources["m"], source);

        fs::write(world.store.join("m/1/model.onnx"), "second").unwrap();
        world.load(&source).await.unwrap();
        assert_eq!(world.served(), "first", "a copy with the digest is complete");

        let wrong = world.source(Some(&format!("sha256:{}", "0".repeat(64))));
        let told = world.load(&wrong).await.unwrap_err();
        assert!(
            told.starts_with("source.digest: the files at file:///") && told.contains("expected sha256:000"),
            "{told}"
        );
        assert_eq!(
            (world.served(), &world.node.list().await.unwrap().sources["m"]),
            ("first".to_owned(), &source)
        );

        let second = digest_of(&[("1/model.onnx", "second"), ("config.pbtxt", "max_batch_size: 4")]);
        world.load(&world.source(Some(&second))).await.unwrap();
        assert_eq!(world.served(), "second");
        let copies = fs::read_dir(world.repository.join(SOURCES)).unwrap();
        let copies = copies.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir()).count();
        assert_eq!(copies, 1, "older copies are removed");
    }

    #[tokio::test]
    async fn a_source_that_the_server_refuses_is_not_recorded() {
        let world = World::new();
        world.server.0.lock().unwrap().1 = true;
        assert_eq!(world.load(&world.source(None)).await.unwrap_err(), "no memory");
        assert!(world.node.list().await.unwrap().sources.is_empty());
        world.server.0.lock().unwrap().1 = false;
        fs::write(world.store.join("m/1/model.onnx"), "second").unwrap();
        world.load(&world.source(None)).await.unwrap();
        assert_eq!(world.served(), "second", "without a digest, what is there now");
    }

    #[tokio::test]
    async fn what_is_not_of_the_agent_stays() {
        let world = World::new();
        fs::create_dir_all(world.repository.join("m/1")).unwrap();
        fs::write(world.repository.join("m/1/model.onnx"), "of the operator").unwrap();
        let told = world.load(&world.source(None)).await.unwrap_err();
        assert!(told.contains("exists and is not a link of this agent"), "{told}");
        assert_eq!(world.served(), "of the operator");
        let without = WithSources { node: world.server.clone(), files: None };
        let told = without.load("m", Some(&world.source(None))).await.unwrap_err().to_string();
        assert!(told.contains("expected `--repository`"), "{told}");
        without.load("m", None).await.unwrap();
    }
}
