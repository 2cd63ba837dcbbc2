//! Where an ONNX Runtime library may lie.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The parts of the process environment that the search looks at, read once by `main`.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `PATH`: where to find `python3`.
    pub path: Option<OsString>,
    /// `VIRTUAL_ENV`: the active Python environment.
    pub virtual_env: Option<PathBuf>,
    /// `ORT_DYLIB_PATH`: the library itself.
    pub ort_dylib_path: Option<PathBuf>,
    /// This program's own file. A wheel installs it in `bin` of a Python environment.
    pub program: Option<PathBuf>,
}

impl Environment {
    /// The variables of a process, without its own file.
    pub fn of_variables(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        Self {
            path: variable("PATH"),
            virtual_env: variable("VIRTUAL_ENV").map(PathBuf::from),
            ort_dylib_path: variable("ORT_DYLIB_PATH").map(PathBuf::from),
            program: None,
        }
    }
}

/// One place that was looked at.
pub(super) struct Candidate {
    pub place: String,
    pub path: Result<PathBuf, String>,
}

/// How long `python3` may take to say where its packages are.
const PYTHON_TIME_MAX: Duration = Duration::from_secs(5);

/// Bound on what `python3` may say.
const PYTHON_BYTES_MAX: u64 = 64 * 1024;

/// Finds the package without importing it. The empty entry of `sys.path` is the current folder, where anybody
/// may have put an `onnxruntime`.
const PYTHON_SCRIPT: &str = "import sys, importlib.util
sys.path[:] = [p for p in sys.path if p]
spec = importlib.util.find_spec('onnxruntime')
print(next(iter(spec.submodule_search_locations or []), '') if spec else '')";

/// Places to try, in order. A path that a person named is the only one.
pub(super) fn candidates(configured: Option<&Path>, environment: &Environment) -> Vec<Candidate> {
    let named = configured
        .map(|path| ("configuration", path))
        .or_else(|| environment.ort_dylib_path.as_deref().map(|path| ("ORT_DYLIB_PATH", path)));
    if let Some((place, path)) = named {
        return vec![Candidate { place: place.to_owned(), path: file_or_folder(path) }];
    }
    let mut found = Vec::new();
    let own = environment.program.as_deref().and_then(|program| program.parent()?.parent());
    // Most programs are in no Python environment, so its absence is not worth a reason.
    if let Some((root, package)) = own.and_then(|root| Some((root, package(root).ok()?))) {
        let place = format!("the program's environment {}", root.display());
        found.push(Candidate { place, path: in_folder(&package.join("capi")) });
    }
    if let Some(root) = &environment.virtual_env {
        let place = format!("VIRTUAL_ENV {}", root.display());
        found.push(Candidate { place, path: in_virtual_env(root) });
    }
    found.push(Candidate {
        place: "python3 on PATH".to_owned(),
        path: by_python(environment.path.as_deref()),
    });
    found
}

fn file_or_folder(path: &Path) -> Result<PathBuf, String> {
    if path.is_dir() {
        return in_folder(path);
    }
    if path.is_file() { Ok(path.to_owned()) } else { Err(format!("`{}` is not a file", path.display())) }
}

fn in_virtual_env(root: &Path) -> Result<PathBuf, String> {
    in_folder(&package(root)?.join("capi"))
}

/// The folder of the package `onnxruntime` in a Python environment.
fn package(root: &Path) -> Result<PathBuf, String> {
    let lib = root.join("lib");
    let entries = std::fs::read_dir(&lib).map_err(|error| format!("`{}`: {error}", lib.display()))?;
    let mut packages: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path().join("site-packages/onnxruntime"))
        .filter(|package| package.is_dir())
        .collect();
    packages.sort();
    packages.pop().ok_or_else(|| "has no `onnxruntime` package".to_owned())
}

fn by_python(path: Option<&OsStr>) -> Result<PathBuf, String> {
    let folders = path.map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
    let python = folders
        .iter()
        .map(|folder| folder.join("python3"))
        .find(|candidate| candidate.is_file())
        .ok_or("there is no `python3`")?;
    let package = ask(&python)?;
    if package.is_empty() {
        return Err(format!("`{}` has no `onnxruntime` package", python.display()));
    }
    in_folder(&Path::new(&package).join("capi"))
}

/// Runs the script with a bound on its time; the process is always reaped.
fn ask(python: &Path) -> Result<String, String> {
    let shown = python.display();
    let mut child = Command::new(python)
        .args(["-c", PYTHON_SCRIPT])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("`{shown}` does not start: {error}"))?;
    let stdout = child.stdout.take();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut said = String::new();
        let read = stdout.map(|out| out.take(PYTHON_BYTES_MAX).read_to_string(&mut said));
        // The receiver is dropped when the time is up.
        let _ = sender.send(read.map(|result| result.map(|_| said)));
    });
    let answer = receiver.recv_timeout(PYTHON_TIME_MAX);
    if answer.is_err() {
        let _ = child.kill();
    }
    let status = child.wait();
    match answer {
        Err(_) => Err(format!("`{shown}` did not answer within {} s", PYTHON_TIME_MAX.as_secs())),
        Ok(Some(Ok(said))) if status.is_ok_and(|status| status.success()) => Ok(said.trim().to_owned()),
        Ok(_) => Err(format!("`{shown}` could not say where its packages are")),
    }
}

/// The newest `libonnxruntime.so*` of a folder.
fn in_folder(folder: &Path) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("`{}`: {error}", folder.display()))?;
    let files: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    let name =
        |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let newest = files
        .iter()
        .filter(|path| {
            let name = name(path);
            name == "libonnxruntime.so" || name.starts_with("libonnxruntime.so.")
        })
        .max_by_key(|path| {
            name(path).split('.').filter_map(|part| part.parse::<u64>().ok()).collect::<Vec<_>>()
        });
    if let Some(newest) = newest {
        return Ok(newest.clone());
    }
    if files.iter().any(|path| name(path).starts_with("onnxruntime_pybind11_state")) {
        return Err(format!(
            "the wheel in `{}` is older than 1.31 and keeps the library inside its Python module: expected \
             `onnxruntime` 1.31 or later",
            folder.display()
        ));
    }
    Err(format!("`{}` holds no libonnxruntime.so", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wheel(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let capi = root.path().join("lib/python3.11/site-packages/onnxruntime/capi");
        std::fs::create_dir_all(&capi).unwrap();
        for file in files {
            std::fs::write(capi.join(file), "").unwrap();
        }
        root
    }

    fn first(environment: &Environment) -> Result<PathBuf, String> {
        candidates(None, environment).remove(0).path
    }

    #[test]
    fn the_newest_library_of_a_wheel_is_taken() {
        let root = wheel(&[
            "libonnxruntime.so.1.9.0",
            "libonnxruntime.so.1.31.0",
            "libonnxruntime_providers_shared.so",
        ]);
        let environment = Environment { virtual_env: Some(root.path().to_owned()), ..Environment::default() };
        assert!(first(&environment).unwrap().ends_with("libonnxruntime.so.1.31.0"));
    }

    #[test]
    fn old_wheels_are_told_apart_from_none() {
        let old = wheel(&["onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so"]);
        let environment = Environment { virtual_env: Some(old.path().to_owned()), ..Environment::default() };
        assert!(first(&environment).unwrap_err().contains("older than 1.31"));
        let none = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(none.path().join("lib/python3.11")).unwrap();
        let environment = Environment { virtual_env: Some(none.path().to_owned()), ..Environment::default() };
        assert!(first(&environment).unwrap_err().contains("no `onnxruntime`"));
    }

    #[test]
    fn the_environment_that_the_program_is_installed_in_comes_first() {
        let (own, active) = (wheel(&["libonnxruntime.so.1.31.0"]), wheel(&["libonnxruntime.so.1.32.0"]));
        let environment = Environment {
            virtual_env: Some(active.path().to_owned()),
            program: Some(own.path().join("bin/tessera")),
            ..Environment::default()
        };
        assert!(first(&environment).unwrap().starts_with(own.path()));
        let elsewhere = Environment { program: Some("/nowhere/bin/tessera".into()), ..environment };
        assert!(first(&elsewhere).unwrap().starts_with(active.path()));
    }

    #[test]
    fn a_named_path_is_the_only_place() {
        let environment =
            Environment { ort_dylib_path: Some("/nowhere/b.so".into()), ..Environment::default() };
        let found = candidates(Some(Path::new("/nowhere/a.so")), &environment);
        assert_eq!((found.len(), found[0].place.as_str()), (1, "configuration"));
        let found = candidates(None, &environment);
        assert_eq!((found.len(), found[0].place.as_str()), (1, "ORT_DYLIB_PATH"));
        assert!(found[0].path.is_err());
    }

    #[test]
    fn python_is_asked_and_may_fail() {
        let bin = tempfile::tempdir().unwrap();
        let stand_in = |program: &str| {
            let python = bin.path().join("python3");
            let _ = std::fs::remove_file(&python);
            std::os::unix::fs::symlink(program, &python).unwrap();
            by_python(Some(bin.path().as_os_str())).unwrap_err()
        };
        assert!(stand_in("/bin/false").contains("could not say"));
        assert!(stand_in("/bin/true").contains("no `onnxruntime` package"));
        assert!(stand_in("/bin/echo").contains("/capi"));
        assert!(stand_in("/nowhere/python3").contains("no `python3`"));
        assert!(by_python(None).unwrap_err().contains("no `python3`"));
    }
}
