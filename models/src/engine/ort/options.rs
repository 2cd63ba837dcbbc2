//! Session settings that a model's configuration asks of ONNX Runtime.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use ::ort::ep::{
    self, ArbitrarilyConfigurableExecutionProvider, ExecutionProvider, ExecutionProviderDispatch,
};
use ::ort::session::RunOptions;
use ::ort::session::builder::GraphOptimizationLevel;
use serde::{Deserialize, Serialize};

/// Session settings of one model. The default is what models without settings get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrtSettings {
    /// Which rewrites of the graph are allowed.
    pub graph_level: GraphLevel,
    /// Threads within an operator, the lane's own included. More than the lane has cores are not started. `None`: one for
    /// each core of the lane.
    pub intra_threads: Option<NonZeroUsize>,
    /// Operators that run at a time where `parallel` is set, at most the cores of the lane. `None`: the cores of the lane.
    pub inter_threads: Option<NonZeroUsize>,
    /// Runs independent operators at the same time.
    pub parallel: bool,
    /// Whether threads wait for work by spinning, for a short time.
    pub spinning: bool,
    /// Keeps memory between runs. `None`: yes.
    pub arena: Option<bool>,
    /// Plans the memory of a run ahead. `None`: yes where all input shapes are fixed.
    pub memory_pattern: Option<bool>,
    /// Gives memory of CPU arenas back after every run.
    pub shrink_arena: bool,
    /// Whether weights are allocated outside of the arena.
    pub initializers_outside_arena: bool,
    /// Execution providers in order of preference.
    pub accelerators: Vec<Accelerator>,
    /// Whether a provider that cannot be used prevents the load. If not, the model runs without it.
    pub accelerators_required: bool,
}

/// Levels of `optimization.graph.level`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GraphLevel {
    /// Level 0.
    #[default]
    All,
    /// Level -1: rewrites that hold for every provider.
    Basic,
    /// Level 1: also fusions, but no changes of memory layout.
    Extended,
    /// Level 2: the graph runs as it is in the file.
    Disabled,
}

impl GraphLevel {
    /// Every level, the fewest rewrites first.
    pub const EACH: [Self; 4] = [Self::Disabled, Self::Basic, Self::Extended, Self::All];

    /// The word of `tessera.toml`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Basic => "basic",
            Self::Extended => "extended",
            Self::Disabled => "disable",
        }
    }

    /// The level of a number in `config.pbtxt`. `None`: no level has this number.
    pub fn from_number(number: i32) -> Option<Self> {
        match number {
            0 => Some(Self::All),
            -1 => Some(Self::Basic),
            1 => Some(Self::Extended),
            2 => Some(Self::Disabled),
            _ => None,
        }
    }

    pub(super) fn of_runtime(self) -> GraphOptimizationLevel {
        match self {
            Self::All => GraphOptimizationLevel::All,
            Self::Basic => GraphOptimizationLevel::Level1,
            Self::Extended => GraphOptimizationLevel::Level2,
            Self::Disabled => GraphOptimizationLevel::Disable,
        }
    }
}

/// One execution provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    /// Which provider.
    pub provider: Provider,
    /// Its options, in the words of ONNX Runtime.
    pub options: BTreeMap<String, String>,
}

/// Execution providers that `config.pbtxt` can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Provider {
    /// OpenVINO, on lanes of the CPU.
    OpenVino,
    /// CUDA, on gpulets of a GPU. They always use it.
    Cuda,
}

impl Provider {
    /// The word of `config.pbtxt`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenVino => "openvino",
            Self::Cuda => "cuda",
        }
    }

    fn is_available(self) -> bool {
        match self {
            Self::OpenVino => ep::OpenVINO::is_available().unwrap_or(false),
            Self::Cuda => ep::CUDA::is_available().unwrap_or(false),
        }
    }
}

impl OrtSettings {
    /// Threads within an operator on a lane that allows this many.
    pub(super) fn threads(&self, allowed: usize) -> usize {
        self.intra_threads.map_or(allowed, |asked| asked.get().min(allowed)).max(1)
    }

    /// Operators that run at a time on a lane that allows this many threads.
    pub(super) fn operators(&self, allowed: usize) -> usize {
        if !self.parallel {
            return 1;
        }
        self.inter_threads.map_or(allowed, |asked| asked.get().min(allowed)).max(1)
    }

    /// What is asked for and not done on a lane that allows this many threads, with the reason.
    pub(super) fn without_effect(&self, allowed: usize, has_fixed_inputs: bool) -> Vec<String> {
        let capped = |setting: &str, asked: Option<NonZeroUsize>| {
            let asked = asked.filter(|asked| asked.get() > allowed)?;
            Some(format!("{setting}: {asked} threads are asked for, and the lane has {allowed}"))
        };
        let pattern = (self.memory_pattern == Some(true) && !has_fixed_inputs).then(|| {
            "enable_mem_pattern: has no effect, because input shapes vary and plans would grow without bound".to_owned()
        });
        let threads = [
            capped("intra_op_thread_count", self.intra_threads),
            capped("inter_op_thread_count", self.inter_threads.filter(|_| self.parallel)),
        ];
        threads.into_iter().chain([pattern]).flatten().collect()
    }

    /// Providers of a session on the CPU, the most preferred first.
    ///
    /// # Errors
    /// A required provider that the library does not have.
    pub(super) fn cpu_providers(
        &self,
        model: &str,
        threads: usize,
    ) -> Result<Vec<ExecutionProviderDispatch>, String> {
        let mut providers = Vec::new();
        for Accelerator { provider, options } in &self.accelerators {
            if !provider.is_available() {
                let has: Vec<&str> = [Provider::OpenVino, Provider::Cuda]
                    .into_iter()
                    .filter(|provider| provider.is_available())
                    .map(Provider::as_str)
                    .chain(["cpu"])
                    .collect();
                let name = provider.as_str();
                let reason = format!(
                    "`execution_accelerators`: this ONNX Runtime library has no provider `{name}`: expected one of {}",
                    has.join(", ")
                );
                if self.accelerators_required {
                    return Err(reason);
                }
                tracing::warn!(model, "{reason}; the model runs without it");
            } else if *provider == Provider::OpenVino {
                let device = ep::OpenVINO::default().with_device_type("CPU").with_num_threads(threads);
                let configured = options
                    .iter()
                    .fold(device, |provider, (key, value)| provider.with_arbitrary_config(key, value));
                providers.push(configured.build().error_on_failure());
            }
        }
        providers.push(ep::CPU::default().with_arena_allocator(self.has_arena()).build());
        Ok(providers)
    }

    /// Options that the configuration gives a provider.
    pub(super) fn options_of(&self, provider: Provider) -> impl Iterator<Item = (&String, &String)> {
        let of = self.accelerators.iter().filter(move |accelerator| accelerator.provider == provider);
        of.flat_map(|accelerator| &accelerator.options)
    }

    /// Whether a session on the CPU starts threads besides those of the runtime's pools.
    pub(super) fn has_threads_of_providers(&self) -> bool {
        self.accelerators.iter().any(|accelerator| accelerator.provider == Provider::OpenVino)
    }

    /// What an error of a provider may be about: it does not name the option.
    pub(super) fn hint(&self) -> String {
        let options: Vec<String> =
            self.options_of(Provider::OpenVino).map(|(key, value)| format!("{key}={value}")).collect();
        if options.is_empty() {
            String::new()
        } else {
            format!(" (options of openvino: {})", options.join(", "))
        }
    }

    pub(super) fn has_arena(&self) -> bool {
        self.arena.unwrap_or(true)
    }

    /// Options of every run.
    pub(super) fn run_options(&self) -> Result<RunOptions, ::ort::Error> {
        if self.shrink_arena { shrinking() } else { RunOptions::new() }
    }
}

/// Options of a run that gives the memory of the CPU's arena back.
pub(super) fn shrinking() -> Result<RunOptions, ::ort::Error> {
    let mut options = RunOptions::new()?;
    options.set("memory.enable_memory_arena_shrinkage", "cpu:0")?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lane_does_not_do_is_told() {
        let asked = OrtSettings {
            intra_threads: NonZeroUsize::new(8),
            inter_threads: NonZeroUsize::new(8),
            memory_pattern: Some(true),
            ..OrtSettings::default()
        };
        let told = asked.without_effect(2, false);
        assert_eq!(told.len(), 2, "operators run one after the other: {told:?}");
        assert_eq!(told[0], "intra_op_thread_count: 8 threads are asked for, and the lane has 2");
        assert!(told[1].starts_with("enable_mem_pattern: has no effect"), "{told:?}");
        assert_eq!(OrtSettings { parallel: true, ..asked.clone() }.without_effect(2, false).len(), 3);
        assert!(asked.without_effect(8, true).is_empty());
    }
}
