//! Which way of sharing a GPU is used, and why.
//!
//! Settings of the GPU are read and never changed: operators decide whether MIG is on and whether an MPS daemon runs.
//!
//! **\[open\]**, to be checked on a machine with MPS: that the control daemon's folder has a file
//! `nvidia-cuda-mps-control.pid` with the id of a process of that name.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use gpulet::{Capacity, Compute, FaultDomain, Guarantees, Resize, Sharing, TimeSharing};
use serde::Serialize;

use crate::probe::Found;

/// Where the MPS control daemon keeps its files by default.
pub const MPS_FOLDER: &str = "/tmp/nvidia-mps";

/// The environment variable that says where the MPS control daemon keeps its files.
pub const MPS_FOLDER_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// The environment variable with the share of the SMs that a process may use under MPS, in percent. The driver reads it
/// when the process creates its first context, and the share never changes.
pub const MPS_SHARE_VARIABLE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// A way of sharing a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// A MIG instance, which is a device of its own.
    Mig,
    /// Gpulets are green contexts.
    CudaGreen,
    /// Gpulets are processes under an MPS daemon, each with a share of the SMs.
    CudaMps,
    /// One gpulet with the whole device, which other processes may share by time.
    CudaStream,
}

impl Backend {
    /// All backends, in the order of preference.
    pub const ALL: [Self; 4] = [Self::Mig, Self::CudaGreen, Self::CudaMps, Self::CudaStream];

    /// The name in configuration and in [`DeviceInfo`](gpulet::DeviceInfo).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mig => "mig",
            Self::CudaGreen => "cuda-green",
            Self::CudaMps => "cuda-mps",
            Self::CudaStream => "cuda-stream",
        }
    }

    /// What the device guarantees if all of its gpulets are in one process (with MPS: one gpulet per process). A fault
    /// then ends that process; `gpulet-worker` adapts this for devices in worker processes.
    pub fn guarantees(self) -> Guarantees {
        let shared = Guarantees {
            compute: Compute::None,
            memory_bandwidth: Sharing::Shared,
            cache: Sharing::Shared,
            copy_engines: Sharing::Shared,
            memory_capacity: Capacity::Accounted,
            fault_domain: FaultDomain::Process,
            resize: Resize::Fixed,
            overlap: true,
            time_sharing: TimeSharing::No,
        };
        match self {
            Self::Mig => Guarantees {
                compute: Compute::Exclusive,
                memory_bandwidth: Sharing::Isolated,
                cache: Sharing::Isolated,
                copy_engines: Sharing::Isolated,
                memory_capacity: Capacity::Hard,
                ..shared
            },
            Self::CudaGreen => Guarantees { compute: Compute::Exclusive, resize: Resize::Live, ..shared },
            // A fault of one client ends all clients of the daemon on that GPU.
            Self::CudaMps => Guarantees {
                compute: Compute::UpperBound,
                resize: Resize::NewProcess,
                fault_domain: FaultDomain::Device,
                ..shared
            },
            Self::CudaStream => shared,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name is not that of a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown GPU backend `{0}`: expected `mig`, `cuda-green`, `cuda-mps` or `cuda-stream`")]
pub struct UnknownBackend(String);

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let found = Self::ALL.into_iter().find(|backend| backend.as_str() == name);
        found.ok_or_else(|| UnknownBackend(name.chars().take(64).collect()))
    }
}

/// Why no MPS daemon can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no MPS control daemon: {0}")]
pub struct MpsAbsent(String);

/// Checks that an MPS control daemon runs that keeps its files in this folder. Reads files only.
///
/// # Errors
/// Why it does not.
pub fn mps_daemon(folder: &Path) -> Result<(), MpsAbsent> {
    daemon_in(folder, Path::new("/proc"))
}

fn daemon_in(folder: &Path, processes: &Path) -> Result<(), MpsAbsent> {
    let file = folder.join("nvidia-cuda-mps-control.pid");
    let text = std::fs::read_to_string(&file)
        .map_err(|error| MpsAbsent(format!("{}: {}", file.display(), error.kind())))?;
    let number: u32 =
        text.trim().parse().map_err(|_| MpsAbsent(format!("{}: expected a process id", file.display())))?;
    let name = std::fs::read_to_string(processes.join(number.to_string()).join("comm"))
        .map_err(|_| MpsAbsent(format!("process {number}, which {} names, has ended", file.display())))?;
    if name.starts_with("nvidia-cuda-mps") {
        return Ok(());
    }
    Err(MpsAbsent(format!("process {number}, which {} names, is `{}`", file.display(), name.trim())))
}

/// The chosen backend, and why preferred ones were not chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The chosen backend.
    pub backend: Backend,
    /// Preferred backends that are not available, each with the reason.
    pub passed_over: Vec<(Backend, String)>,
}

/// The backend that an operator chose is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gpu{ordinal}: backend `{backend}` is not available: {reason}")]
pub struct BackendError {
    /// The driver's number for the GPU.
    pub ordinal: i32,
    /// The backend.
    pub backend: Backend,
    /// Why it is not available.
    pub reason: String,
}

/// Chooses the backend of a GPU: MIG if it is an instance, else green contexts if the driver supports them, else MPS if
/// its daemon runs, else streams. A `forced` backend is used or refused.
///
/// # Errors
/// The forced backend is not available.
pub fn choose(
    found: &Found,
    mps: &Result<(), MpsAbsent>,
    forced: Option<Backend>,
) -> Result<Choice, BackendError> {
    let obstacle = |backend| match backend {
        Backend::Mig => (!found.mig).then(|| "the GPU is not a MIG instance".to_owned()),
        Backend::CudaGreen => found.green.as_ref().err().map(ToString::to_string),
        Backend::CudaMps => mps.as_ref().err().map(ToString::to_string),
        Backend::CudaStream => None,
    };
    if let Some(backend) = forced {
        return match obstacle(backend) {
            None => Ok(Choice { backend, passed_over: Vec::new() }),
            Some(reason) => Err(BackendError { ordinal: found.ordinal, backend, reason }),
        };
    }
    let mut passed_over = Vec::new();
    for backend in Backend::ALL {
        match obstacle(backend) {
            None => return Ok(Choice { backend, passed_over }),
            Some(reason) => passed_over.push((backend, reason)),
        }
    }
    Ok(Choice { backend: Backend::CudaStream, passed_over })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::GreenMissing;

    fn found(mig: bool, green: Result<(), GreenMissing>) -> Found {
        Found {
            ordinal: 1,
            name: "Test".to_owned(),
            uuid: String::new(),
            capability: (9, 0),
            sms: 132,
            memory_bytes: 1 << 30,
            driver_version: 13_000,
            green,
            mig,
        }
    }

    fn absent() -> Result<(), MpsAbsent> {
        Err(MpsAbsent("no file".to_owned()))
    }

    fn old() -> Result<(), GreenMissing> {
        Err(GreenMissing::Old { version: 12_020 })
    }

    #[test]
    fn the_most_preferred_available_backend_is_chosen() {
        let backend = |found: &Found, mps| choose(found, mps, None).unwrap().backend;
        assert_eq!(backend(&found(true, Ok(())), &Ok(())), Backend::Mig);
        assert_eq!(backend(&found(false, Ok(())), &Ok(())), Backend::CudaGreen);
        assert_eq!(backend(&found(false, old()), &Ok(())), Backend::CudaMps);
        assert_eq!(backend(&found(false, old()), &absent()), Backend::CudaStream);
    }

    #[test]
    fn passed_over_backends_have_a_reason() {
        let choice = choose(&found(false, old()), &absent(), None).unwrap();
        let reasons: Vec<_> = choice.passed_over.iter().map(|(_, reason)| reason.as_str()).collect();
        assert_eq!(
            reasons,
            [
                "the GPU is not a MIG instance",
                "driver 12.2 has no streams in green contexts: expected 12.5 or later",
                "no MPS control daemon: no file",
            ]
        );
    }

    #[test]
    fn a_forced_backend_is_used_or_refused() {
        let forced = choose(&found(true, Ok(())), &absent(), Some(Backend::CudaGreen)).unwrap();
        assert_eq!(forced.backend, Backend::CudaGreen);
        let refused = choose(&found(false, Ok(())), &absent(), Some(Backend::CudaMps)).unwrap_err();
        let text = "gpu1: backend `cuda-mps` is not available: no MPS control daemon: no file";
        assert_eq!(refused.to_string(), text);
        for backend in Backend::ALL {
            assert_eq!(backend.as_str().parse(), Ok(backend));
        }
        assert!("mps".parse::<Backend>().unwrap_err().to_string().contains("`mps`: expected `mig`"));
    }

    #[test]
    fn a_daemon_counts_only_while_its_process_runs() {
        let folder = tempfile::tempdir().unwrap();
        let processes = tempfile::tempdir().unwrap();
        let asked = || daemon_in(folder.path(), processes.path()).map_err(|absent| absent.to_string());
        assert!(asked().unwrap_err().contains("entity not found"));
        let file = folder.path().join("nvidia-cuda-mps-control.pid");
        std::fs::write(&file, "many").unwrap();
        assert!(asked().unwrap_err().contains("expected a process id"));
        std::fs::write(&file, "17\n").unwrap();
        assert!(asked().unwrap_err().contains("process 17, which"));
        std::fs::create_dir(processes.path().join("17")).unwrap();
        std::fs::write(processes.path().join("17/comm"), "bash\n").unwrap();
        assert!(asked().unwrap_err().ends_with("is `bash`"));
        std::fs::write(processes.path().join("17/comm"), "nvidia-cuda-mps\n").unwrap();
        assert_eq!(asked(), Ok(()));
    }
}
