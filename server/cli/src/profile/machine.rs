//! The measured device: this machine's cores, and how profiles describe it.

use std::fs;

use anyhow::Context as _;
use models::Loader;

/// Device type of the profiles: one unit is a core.
pub const DEVICE: &str = gpulet::CoresDevice::DEVICE_TYPE;

/// The properties of this machine on which measurements depend.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Cores that this process may use, ascending.
    pub cores: Vec<usize>,
    /// Name of the processor and version of the kernel. Times of different machines are not mixed.
    pub words: String,
}

impl Machine {
    /// The machine on which this runs.
    pub fn here() -> anyhow::Result<Self> {
        let cores = gpulet::allowed_cores().context("cannot profile")?;
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let words = words(&read("/proc/cpuinfo"), &read("/proc/sys/kernel/osrelease"));
        Ok(Self { cores, words })
    }

    /// Units of the device.
    pub fn units(&self) -> u32 {
        u32::try_from(self.cores.len()).unwrap_or(u32::MAX)
    }
}

fn words(cpuinfo: &str, release: &str) -> String {
    let name =
        cpuinfo.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == "model name");
    let name = name.map_or("unknown processor", |(_, name)| name.trim());
    let release = if release.trim().is_empty() { "unknown" } else { release.trim() };
    format!("{name}; kernel {release}")
}

/// An engine with its version: that of its library, or of this program for those that are part of it.
pub fn engine_words(engine: &str, loader: &Loader) -> String {
    match &loader.ort {
        Ok(library) if engine == models::engine::ort::NAME => format!("{engine} {}", library.version),
        _ => format!("{engine} of tessera {}", env!("CARGO_PKG_VERSION")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_by_its_processor_and_kernel() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t: a b\n\nmodel name\t: Other\n";
        assert_eq!(words(cpuinfo, "6.1.0-13\n"), "Some CPU @ 2 GHz; kernel 6.1.0-13");
        assert_eq!(words("", ""), "unknown processor; kernel unknown");
        let here = Machine::here().unwrap();
        assert!(here.units() >= 1 && !here.words.contains('\n'));
    }

    #[test]
    fn an_engine_is_told_with_its_version() {
        assert!(engine_words("tract", &Loader::without_ort()).starts_with("tract of tessera "));
    }
}
