//! Loads the credentials and certificates, and loads them again when their files change.
//!
//! The files are compared on each call of [`Identity::refresh`], because Kubernetes replaces a mounted secret by swapping a
//! link, which watches of single files miss. Changed content is loaded once it is the same in two calls: a certificate and its
//! key are two files, and the program that writes them needs time to finish.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::Authenticator;
use crate::api_keys::{ApiKeys, Hash};
use crate::credential_file::{File, Mistake};
use crate::file::{self, WatchedFile};
use crate::settings::{Settings, TlsFiles, TokenSettings};
use crate::tls::{Pem, Tls};
use crate::token::Tokens;

/// A file that changed.
#[derive(Clone, Debug)]
pub struct Reload {
    /// Which one.
    pub file: File,
    /// Where it is.
    pub path: PathBuf,
    /// Whether the new content is in force. Otherwise the old content is, and this says why.
    pub result: Result<(), String>,
}

/// Files that are only valid together.
struct Group {
    files: Vec<(File, WatchedFile)>,
    /// Content that was loaded, or that failed to.
    known: Vec<Option<Hash>>,
    /// Content of the last call that differs from it.
    changed: Option<Vec<Option<Hash>>>,
}

impl Group {
    fn new(files: impl IntoIterator<Item = (File, PathBuf)>) -> Self {
        let mut files: Vec<_> =
            files.into_iter().map(|(file, path)| (file, WatchedFile::new(path))).collect();
        let known = files.iter_mut().map(|(_, watched)| watched.content()).collect();
        Self { files, known, changed: None }
    }

    /// Whether there is new content to load.
    fn has_new_content(&mut self) -> bool {
        let now: Vec<_> = self.files.iter_mut().map(|(_, watched)| watched.content()).collect();
        if now == self.known {
            self.changed = None;
            return false;
        }
        if self.changed.as_ref() != Some(&now) {
            self.changed = Some(now);
            return false;
        }
        self.known = now;
        self.changed = None;
        true
    }
}

/// The credentials and certificates of the server.
pub struct Identity {
    settings: Settings,
    /// Finds callers. `None`: callers do not have to say who they are.
    pub authenticator: Option<Arc<Authenticator>>,
    /// Certificates of the listeners. `None`: they speak without TLS.
    pub tls: Option<Arc<Tls>>,
    groups: Mutex<Vec<Group>>,
}

impl Identity {
    /// Loads what the settings name.
    ///
    /// # Errors
    /// Every mistake in the files.
    pub fn load(settings: Settings) -> Result<Self, Vec<Mistake>> {
        let authenticator = Authenticator::default();
        let (mut groups, mut mistakes) = (Vec::new(), Vec::new());
        if let Some(path) = &settings.keys {
            // Watched before it is read, so that a change in between is seen.
            groups.push(Group::new([(File::Keys, path.clone())]));
            load_keys(&authenticator, path).unwrap_or_else(|found| mistakes.extend(found));
        }
        if let Some(tokens) = &settings.tokens {
            groups.push(Group::new([(File::Jwks, tokens.jwks.clone())]));
            load_tokens(&authenticator, tokens).unwrap_or_else(|found| mistakes.extend(found));
        }
        let mut tls = None;
        if let Some(files) = &settings.tls {
            groups.push(Group::new(paths(files)));
            match read_tls(files).and_then(|pem| Tls::new(&pem.as_ref(), files.clients.clone()).map_err(one))
            {
                Ok(loaded) => tls = Some(Arc::new(loaded)),
                Err(found) => mistakes.extend(found),
            }
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let clients = settings.tls.as_ref().is_some_and(|files| files.clients.is_some());
        let asks = settings.keys.is_some() || settings.tokens.is_some() || clients;
        let authenticator = asks.then(|| Arc::new(authenticator));
        Ok(Self { settings, authenticator, tls, groups: Mutex::new(groups) })
    }

    /// Loads files that changed since the last call, and says which. Reads files, so it blocks.
    pub fn refresh(&self) -> Vec<Reload> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reloads = Vec::new();
        for group in groups.iter_mut() {
            if !group.has_new_content() {
                continue;
            }
            let failed =
                group.files.first().and_then(|(file, _)| self.reload(*file).err()).unwrap_or_default();
            for (file, watched) in &group.files {
                let message =
                    failed.iter().find(|mistake| mistake.file == *file).map(|found| found.message.clone());
                let result = match message {
                    Some(message) => Err(message),
                    // Another file of the group is at fault, which has its own entry.
                    None if !failed.is_empty() => continue,
                    None => Ok(()),
                };
                reloads.push(Reload { file: *file, path: watched.path.clone(), result });
            }
        }
        reloads
    }

    /// When the first certificate of each file expires.
    pub fn expiries(&self) -> Vec<(File, SystemTime)> {
        self.tls.iter().flat_map(|tls| tls.expiries()).collect()
    }

    /// Files that are watched.
    pub fn files(&self) -> Vec<File> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.iter().flat_map(|group| group.files.iter().map(|(file, _)| *file)).collect()
    }

    fn reload(&self, file: File) -> Result<(), Vec<Mistake>> {
        let Settings { keys, tokens, tls } = &self.settings;
        match (file, &self.authenticator) {
            (File::Keys, Some(authenticator)) => {
                keys.iter().try_for_each(|path| load_keys(authenticator, path))
            }
            (File::Jwks, Some(authenticator)) => {
                tokens.iter().try_for_each(|tokens| load_tokens(authenticator, tokens))
            }
            (File::Keys | File::Jwks, None) => Ok(()),
            (File::Cert | File::Key | File::ClientCa, _) => {
                let (Some(files), Some(current)) = (tls, &self.tls) else { return Ok(()) };
                current.replace(&read_tls(files)?.as_ref()).map_err(one)
            }
        }
    }
}

fn one(mistake: Mistake) -> Vec<Mistake> {
    vec![mistake]
}

fn of<T>(file: File, result: Result<T, String>) -> Result<T, Vec<Mistake>> {
    result.map_err(|message| vec![Mistake { file, message }])
}

fn read_text(file: File, path: &Path) -> Result<String, Vec<Mistake>> {
    let text = file::read(path).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|_| format!("`{}`: expected text in UTF-8", path.display()))
    });
    of(file, text)
}

fn load_keys(authenticator: &Authenticator, path: &Path) -> Result<(), Vec<Mistake>> {
    let keys = ApiKeys::parse(&read_text(File::Keys, path)?).map_err(|mistakes| {
        mistakes.into_iter().map(|message| Mistake { file: File::Keys, message }).collect::<Vec<_>>()
    })?;
    authenticator.keys.store(Some(Arc::new(keys)));
    Ok(())
}

fn load_tokens(authenticator: &Authenticator, settings: &TokenSettings) -> Result<(), Vec<Mistake>> {
    let set = read_text(File::Jwks, &settings.jwks)?;
    let tokens = of(File::Jwks, Tokens::new(&set, settings.clone()))?;
    authenticator.tokens.store(Some(Arc::new(tokens)));
    Ok(())
}

fn paths(files: &TlsFiles) -> Vec<(File, PathBuf)> {
    let ca = files.clients.as_ref().map(|clients| (File::ClientCa, clients.ca.clone()));
    [(File::Cert, files.cert.clone()), (File::Key, files.key.clone())].into_iter().chain(ca).collect()
}

/// Content of the files of TLS.
struct TlsContent {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl TlsContent {
    fn as_ref(&self) -> Pem<'_> {
        Pem { cert: &self.cert, key: &self.key, client_ca: self.client_ca.as_deref() }
    }
}

fn read_tls(files: &TlsFiles) -> Result<TlsContent, Vec<Mistake>> {
    let client_ca = files.clients.as_ref().map(|clients| of(File::ClientCa, file::read(&clients.ca)));
    Ok(TlsContent {
        cert: of(File::Cert, file::read(&files.cert))?,
        key: of(File::Key, file::read(&files.key))?,
        client_ca: client_ca.transpose()?,
    })
}

#[cfg(test)]
mod tests;
