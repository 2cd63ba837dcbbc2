//! The cores that this process may use.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoreError {
    /// The affinity mask could not be read.
    #[error("cannot read the cores this process may use: {0}")]
    Read(std::io::ErrorKind),
    /// A thread could not be pinned.
    #[error("cannot pin a thread to cores {cores:?}: {kind}")]
    Pin {
        /// The cores asked for.
        cores: Vec<usize>,
        /// What the kernel said.
        kind: std::io::ErrorKind,
    },
}

/// Numbers of the cores in this process's affinity mask, ascending.
pub fn allowed_cores() -> Result<Vec<usize>, CoreError> {
    let mask = sched_getaffinity(None).map_err(|errno| CoreError::Read(errno.kind()))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| mask.is_set(core)).collect())
}

/// Keeps the calling thread on these cores from now on.
pub fn pin_this_thread(cores: &[usize]) -> Result<(), CoreError> {
    let mut mask = CpuSet::new();
    let refused = |kind| CoreError::Pin { cores: cores.to_vec(), kind };
    for &core in cores {
        if core >= CpuSet::MAX_CPU {
            return Err(refused(std::io::ErrorKind::InvalidInput));
        }
        mask.set(core);
    }
    sched_setaffinity(None, &mask).map_err(|errno| refused(errno.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_pinned() {
        let last = *allowed_cores().unwrap().last().unwrap();
        let seen = std::thread::spawn(move || {
            pin_this_thread(&[last]).unwrap();
            allowed_cores().unwrap()
        });
        assert_eq!(seen.join().unwrap(), [last]);
    }

    #[test]
    fn cores_that_are_not_there_are_refused() {
        let refused = std::thread::spawn(|| pin_this_thread(&[CpuSet::MAX_CPU + 1])).join().unwrap();
        assert!(refused.unwrap_err().to_string().starts_with("cannot pin a thread"));
    }
}
