//! What makes sessions: our kernels, and models if there is an engine for them.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use gpulet::DeviceError;
use gpulet_cuda::{Cudnn, Need, OnnxMaker, OnnxOptions, SessionMaker, StreamRef};
use models::engine::Session;
use models::engine::ort::{Environment, discover};
use models::{Format, LoadOptions, Loader, ModelFiles};

use crate::kernel_maker::KernelMaker;

/// Makes makers of model sessions by the use of cuDNN; an error says what is missing.
pub type Engine = Result<Arc<dyn Fn(Cudnn) -> Arc<dyn SessionMaker> + Send + Sync>, String>;

/// The library with the CUDA provider, next to the one that loads it.
const PROVIDER: &str = "libonnxruntime_providers_cuda.so";

/// The library that runs models, after it was loaded.
static LIBRARY: OnceLock<String> = OnceLock::new();

/// The engine for ONNX models on GPUs: ONNX Runtime, if it has its CUDA provider.
pub fn onnx(library: Option<&Path>) -> Engine {
    // The argument takes the place of `ORT_DYLIB_PATH`.
    let variable = |name: &str| std::env::var_os(name).filter(|_| name != "ORT_DYLIB_PATH");
    let environment = Environment::of_variables(variable);
    let library = discover(library, &environment).map_err(|missing| missing.to_string())?;
    let provider = library.path.with_file_name(PROVIDER);
    if !provider.exists() {
        let (path, folder) = (library.path.display(), provider.display());
        return Err(format!("{path}: no CUDA provider: expected {folder}, as in onnxruntime-gpu"));
    }
    let _ = LIBRARY.set(format!("ONNX Runtime {} with its CUDA provider, TF32", library.version));
    let loader = Arc::new(Loader::new(Ok(library)));
    Ok(Arc::new(move |cudnn| {
        let options = OnnxOptions { cudnn, ..OnnxOptions::default() };
        Arc::new(OnnxMaker::new(Arc::clone(&loader), options))
    }))
}

/// Describes the library that runs models; none before one is loaded.
pub(crate) fn library() -> Option<&'static str> {
    LIBRARY.get().map(String::as_str)
}

/// Makes sessions of kernels and of models.
pub struct Makers {
    kernels: KernelMaker,
    onnx: Result<Arc<dyn SessionMaker>, String>,
}

impl Makers {
    /// Makers with this engine for models.
    pub fn new(engine: &Engine, cudnn: Cudnn) -> Self {
        let onnx = engine.as_ref().map(|engine| engine(cudnn)).map_err(Clone::clone);
        Self { kernels: KernelMaker::default(), onnx }
    }

    fn maker(&self, files: &ModelFiles) -> Result<&dyn SessionMaker, DeviceError> {
        match (files.format, &self.onnx) {
            (Format::Synthetic, _) => Ok(&self.kernels),
            (Format::Onnx, Ok(onnx)) => Ok(onnx.as_ref()),
            (Format::Onnx, Err(missing)) => Err(DeviceError(format!("model `{}`: {missing}", files.name))),
            (Format::Python | Format::Ensemble, _) => Err(DeviceError(format!(
                "model `{}`: {} models do not run on a GPU's stream",
                files.name,
                files.format.as_str()
            ))),
        }
    }
}

impl SessionMaker for Makers {
    fn make(
        &self,
        files: &ModelFiles,
        options: &LoadOptions,
        stream: StreamRef,
    ) -> Result<Box<dyn Session>, DeviceError> {
        self.maker(files)?.make(files, options, stream)
    }

    fn need(&self, files: &ModelFiles, options: &LoadOptions) -> Need {
        self.maker(files).map_or(Need { weights: 0, arena: 0 }, |maker| maker.need(files, options))
    }
}
