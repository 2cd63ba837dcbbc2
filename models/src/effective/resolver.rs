//! Checks of a configuration against the model's signature, while it is resolved.

use std::num::NonZeroU32;

use crate::engine::ort::OrtSettings;
use crate::repository::{Pbtxt, TensorDeclaration};
use crate::{
    ConfigError, Dim, EngineChoice, ModelName, ModelSettings, OrtTable, Reshape, Signature, TensorSpec,
};

/// Classes of a model whose configuration does not say: all that the router has.
const DEFAULT_CLASSES: NonZeroU32 = match NonZeroU32::new(64) {
    Some(classes) => classes,
    None => NonZeroU32::MIN,
};

/// What a configuration is resolved from, and the checks of it.
pub(super) struct Resolver<'a> {
    pub name: &'a ModelName,
    pub settings: &'a ModelSettings,
    pub signature: &'a Signature,
}

impl Resolver<'_> {
    pub fn refuse(&self, field: String, reason: String) -> ConfigError {
        ConfigError::one(self.name, field, reason)
    }

    /// A setting by the file that made it.
    pub fn toml(&self, option: &str) -> String {
        format!("tessera.toml: models.{}.{option}", self.name)
    }

    /// Settings of ONNX Runtime have no effect on other engines. Accelerators do not exist there.
    pub fn check_engine(
        &self,
        pbtxt: Option<&Pbtxt>,
        engine: EngineChoice,
        notes: &mut Vec<String>,
    ) -> Result<(), ConfigError> {
        let EngineChoice::Named(name) = engine else { return Ok(()) };
        let of_table = self.settings.ort.as_ref().and_then(OrtTable::first_set);
        if let Some(setting) = of_table.filter(|_| name != crate::engine::ort::NAME) {
            let reason = format!("exists only on ONNX Runtime: expected engine `ort`, got `{name}`");
            return Err(self.refuse(self.toml(&format!("ort.{setting}")), reason));
        }
        let Some(file) = pbtxt else { return Ok(()) };
        let plain =
            OrtSettings { accelerators_required: file.ort.accelerators_required, ..OrtSettings::default() };
        if name == crate::engine::ort::NAME || file.ort == plain {
            return Ok(());
        }
        if file.ort.accelerators_required && !file.ort.accelerators.is_empty() {
            let reason = format!("exist only on ONNX Runtime: expected engine `ort`, got `{name}`");
            let field = "config.pbtxt: optimization.execution_accelerators".to_owned();
            return Err(self.refuse(field, reason));
        }
        notes.push(format!(
            "`optimization` and `parameters` of config.pbtxt are for ONNX Runtime and have no effect on engine `{name}`"
        ));
        Ok(())
    }

    /// Settings of ONNX Runtime in `tessera.toml` mean that no other engine runs the model.
    pub fn engine(&self, engine: EngineChoice) -> EngineChoice {
        let is_set = self.settings.ort.as_ref().is_some_and(|table| table.first_set().is_some());
        if is_set && engine == EngineChoice::Auto {
            EngineChoice::Named(crate::engine::ort::NAME)
        } else {
            engine
        }
    }

    pub fn check_batch(&self, wanted: Option<u32>) -> Result<(), ConfigError> {
        let field = match self.settings.max_batch {
            Some(_) => self.toml("max_batch"),
            None => "config.pbtxt: max_batch_size".to_owned(),
        };
        if wanted == Some(0) && self.settings.free_batch == Some(true) {
            return Err(self.refuse(
                field,
                "is 0, but `free_batch` asks for a batch: expected one or the other".to_owned(),
            ));
        }
        match wanted {
            Some(wanted) if wanted > 0 && self.signature.max_batch == 0 => {
                let reason = format!("is {wanted}, but {}: expected 0", self.obstacle());
                Err(self.refuse(field, reason))
            }
            _ => Ok(()),
        }
    }

    /// The tensor that keeps the model from being batched.
    fn obstacle(&self) -> String {
        let fixed = self.signature.tensors().find_map(|(kind, spec)| match spec.dims.first() {
            None => Some(format!("{kind} `{}` is a scalar", spec.name)),
            Some(Dim::Fixed(1)) => Some(format!(
                "{kind} `{}` fixes its first dimension at 1 (`free_batch = true` can free it)",
                spec.name
            )),
            Some(Dim::Fixed(extent)) => Some(format!(
                "{kind} `{}` has a first dimension fixed at {extent}, which is not a batch",
                spec.name
            )),
            Some(Dim::Free) => None,
        });
        fixed.unwrap_or_else(|| {
            "the graph uses its batch in another place than the first dimension".to_owned()
        })
    }

    pub fn check_tensors(
        &self,
        kind: &str,
        declared: &[TensorDeclaration],
        specs: &[TensorSpec],
        file: &Pbtxt,
    ) -> Result<Vec<Reshape>, ConfigError> {
        let mut reshapes = Vec::new();
        // A Python model may complete the file's `max_batch_size`.
        let batched = if file.is_python() {
            self.signature.max_batch > 0
        } else {
            file.max_batch.is_some_and(|batch| batch > 0)
        };
        let batch_dims = usize::from(batched);
        for tensor in declared {
            let refuse = |what: &str, reason: String| {
                Err(self.refuse(format!("config.pbtxt: {kind} `{}`{what}", tensor.name), reason))
            };
            let Some(spec) = specs.iter().find(|spec| spec.name == tensor.name) else {
                let names =
                    specs.iter().map(|spec| format!("`{}`", spec.name)).collect::<Vec<_>>().join(", ");
                return refuse("", format!("is not in the graph: expected {names}"));
            };
            if spec.datatype != tensor.datatype {
                return refuse(
                    ": data_type",
                    format!("is {}: the graph has {}", tensor.datatype, spec.datatype),
                );
            }
            let own: Vec<Dim> = spec.dims.iter().skip(batch_dims).copied().collect();
            let declared = tensor.reshape.as_ref().unwrap_or(&tensor.dims);
            let fits = own.len() == declared.len()
                && own.iter().zip(declared).all(|(own, &declared)| match own {
                    Dim::Free => true,
                    Dim::Fixed(_) => own.to_wire() == declared,
                });
            if !fits {
                let field = if tensor.reshape.is_some() { ": reshape" } else { ": dims" };
                let graph: Vec<i64> = own.iter().map(|dim| dim.to_wire()).collect();
                let without = if batch_dims > 0 { " without the batch" } else { "" };
                return refuse(field, format!("is {declared:?}: the graph has {graph:?}{without}"));
            }
            if tensor.reshape.is_some() {
                let whole = |dims: &[i64]| -> Vec<Dim> {
                    let rest = dims.iter().map(|&dim| u64::try_from(dim).map_or(Dim::Free, Dim::Fixed));
                    std::iter::repeat_n(Dim::Free, batch_dims).chain(rest).collect()
                };
                let (client, graph) = (whole(&tensor.dims), whole(declared));
                reshapes.push(Reshape { tensor: tensor.name.clone(), client, graph });
            }
        }
        Ok(reshapes)
    }

    /// Padding needs a batch. Ragged batches need padding: the graph gets tensors of one shape.
    pub fn check_padding(&self, pbtxt: Option<&Pbtxt>, limit: u32) -> Result<(), ConfigError> {
        if self.settings.batching.padding.is_some() {
            return match limit {
                0 => Err(self.refuse(self.toml("batching.padding"), "the model is not batched".to_owned())),
                _ => Ok(()),
            };
        }
        match pbtxt.and_then(|file| file.inputs.iter().find(|input| input.is_ragged)) {
            None => Ok(()),
            Some(input) => Err(self.refuse(
                format!("config.pbtxt: input `{}`: allow_ragged_batch", input.name),
                format!(
                    "needs padding: set `padding = \"bucket\"` in `[models.{}.batching]` of tessera.toml, or remove the field",
                    self.name
                ),
            )),
        }
    }

    pub fn preferred(&self, pbtxt: Option<&Pbtxt>, limit: u32) -> Result<Vec<NonZeroU32>, ConfigError> {
        let (field, mut sizes) = match (&self.settings.batching.preferred, pbtxt) {
            (Some(sizes), _) => (self.toml("batching.preferred"), sizes.clone()),
            (None, Some(file)) => {
                ("config.pbtxt: dynamic_batching.preferred_batch_size".to_owned(), file.preferred.clone())
            }
            (None, None) => return Ok(Vec::new()),
        };
        sizes.sort_unstable();
        sizes.dedup();
        match sizes.last() {
            Some(largest) if largest.get() > limit => {
                Err(self.refuse(field, format!("has {largest}: expected at most the largest batch, {limit}")))
            }
            _ => Ok(sizes),
        }
    }

    pub fn classes(&self, pbtxt: Option<&Pbtxt>) -> Result<(NonZeroU32, NonZeroU32), ConfigError> {
        let declared = pbtxt.and_then(|file| file.classes);
        let (field, default) = match (self.settings.default_class, pbtxt.and_then(|file| file.default_class))
        {
            (Some(class), _) => (self.toml("default_class"), class),
            (None, Some(class)) => {
                ("config.pbtxt: dynamic_batching.default_priority_level".to_owned(), class)
            }
            (None, None) => (String::new(), NonZeroU32::MIN),
        };
        let classes = declared.unwrap_or(default.max(DEFAULT_CLASSES));
        if default > classes {
            return Err(self.refuse(field, format!("is {default}: expected 1 to {classes}")));
        }
        Ok((classes, default))
    }

    pub fn check_python(&self, pbtxt: Option<&Pbtxt>) -> Result<(), ConfigError> {
        let Some(option) = self.settings.python_only() else { return Ok(()) };
        let other = pbtxt.is_some_and(|file| file.engine.is_some() && !file.is_python());
        if other
            || !matches!(
                self.settings.engine,
                None | Some(EngineChoice::Auto | EngineChoice::Named("python"))
            )
        {
            let reason =
                "is only for Python models: expected `backend: \"python\"` in config.pbtxt".to_owned();
            return Err(self.refuse(self.toml(option), reason));
        }
        for (option, span) in
            [("load_timeout", self.settings.load_timeout), ("run_timeout", self.settings.run_timeout)]
        {
            if span.is_some_and(|span| span.0.is_zero()) {
                return Err(self.refuse(self.toml(option), "is 0: expected more".to_owned()));
            }
        }
        Ok(())
    }

    pub fn check_times(&self) -> Result<(), ConfigError> {
        match (self.settings.slo, self.settings.timeout_max) {
            (Some(slo), _) if slo.0.is_zero() => Err(self.refuse(
                self.toml("slo"),
                "is 0: expected a time in which a request can be answered".to_owned(),
            )),
            (_, Some(longest)) if longest.0.is_zero() => {
                Err(self.refuse(self.toml("timeout_max"), "is 0: expected more".to_owned()))
            }
            (Some(slo), Some(longest)) if slo > longest => {
                let reason = format!("is {longest}, shorter than the slo of {slo}: expected at least {slo}");
                Err(self.refuse(self.toml("timeout_max"), reason))
            }
            _ => Ok(()),
        }
    }
}
