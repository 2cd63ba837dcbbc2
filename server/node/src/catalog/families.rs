//! `[families.NAME]`: variants of a model as steps of an ensemble, of which each request runs one.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use models::{ContentHash, Ensemble, EnsembleStep, EnsembleTensor, Signature, TensorSpec};
use router_core::{FamilyId, FamilySpec, ModelId, Nanos, Variant, millionths};

use super::quality::{Quality, QualityKind};
use crate::config::FamilySettings;

/// What a version that is a family knows of its variants, which are the steps of its ensemble.
pub struct ServedFamily {
    /// Its number in the router.
    pub id: FamilyId,
    /// The variants, in the order of the steps: the hash of the files whose quality was measured, and the quality.
    pub variants: Vec<(ContentHash, Quality)>,
    /// Least quality of requests that ask for none.
    pub quality_min: f64,
    /// Least mean quality that plans aim for.
    pub quality_mean: f64,
    /// What the router knows: the versions that are its variants, and the objective.
    known: Mutex<(Vec<Option<ModelId>>, Option<Nanos>)>,
}

impl ServedFamily {
    /// A family of which the router knows nothing yet.
    pub(super) fn new(
        id: FamilyId,
        variants: Vec<(ContentHash, Quality)>,
        settings: &FamilySettings,
    ) -> Self {
        let (quality_min, quality_mean) = (settings.quality_min, settings.quality_mean);
        Self { id, variants, quality_min, quality_mean, known: Mutex::default() }
    }

    /// What the router is to know, if the versions of the variants are not those that it knows. `None` of a variant: it is not served.
    /// `objective`: of the family.
    pub fn changed(&self, models: &[Option<ModelId>], objective: Option<Nanos>) -> Option<FamilySpec> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 == models && known.1 == objective {
            return None;
        }
        *known = (models.to_vec(), objective);
        let variants = models.iter().zip(&self.variants).filter_map(|(model, (_, quality))| {
            Some(Variant { model: (*model)?, quality: millionths(quality.value) })
        });
        Some(FamilySpec { family: self.id, variants: variants.collect(), objective })
    }

    /// Whether the settings suit the measured qualities.
    ///
    /// # Errors
    /// What does not.
    pub(super) fn check(&self) -> Result<(), String> {
        let kinds = |kind| self.variants.iter().find(|(_, quality)| quality.kind == kind);
        if kinds(QualityKind::Accuracy).is_some() && kinds(QualityKind::Agreement).is_some() {
            return Err("variants: some qualities are accuracies, and others agreements: expected one kind"
                .to_owned());
        }
        let best = self.best();
        for (key, quality) in [("quality_min", self.quality_min), ("quality_mean", self.quality_mean)] {
            if quality > best {
                return Err(format!("{key}: expected at most {best}, the best variant's, got {quality}"));
            }
        }
        Ok(())
    }

    /// The best quality of its variants.
    pub fn best(&self) -> f64 {
        self.variants.iter().map(|(_, quality)| quality.value).fold(0.0, f64::max)
    }
}

/// The ensemble of a family. `signature_of` says what a model takes and gives.
///
/// # Errors
/// What is wrong with its variants.
pub(super) fn ensemble(
    name: &str,
    settings: &FamilySettings,
    signature_of: impl Fn(&str) -> Result<Signature, String>,
) -> Result<Ensemble, String> {
    let mut steps = Vec::new();
    let mut first: Option<Signature> = None;
    let mut sources: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for variant in &settings.variants {
        let wrong = |problem: String| format!("variants: `{variant}`: {problem}");
        let signature = signature_of(variant).map_err(wrong)?;
        if let Some(first) = &first {
            let other = settings.variants.first().map(String::as_str).unwrap_or_default();
            alike("input", (&first.inputs, &signature.inputs), other).map_err(wrong)?;
            alike("output", (&first.outputs, &signature.outputs), other).map_err(wrong)?;
        }
        for output in &signature.outputs {
            sources.entry(output.name.clone()).or_default().push(format!("{variant}.{}", output.name));
        }
        let inputs = signature.inputs.iter();
        let outputs = signature.outputs.iter();
        steps.push(EnsembleStep {
            name: variant.clone(),
            model: variant.clone(),
            version: None,
            inputs: inputs.map(|spec| (spec.name.clone(), spec.name.clone())).collect(),
            outputs: outputs.map(|spec| (spec.name.clone(), format!("{variant}.{}", spec.name))).collect(),
            answer_if: None,
            fan_out: 1.0,
        });
        first.get_or_insert(signature);
    }
    let Some(first) = first else { return Err("variants: expected at least one model".to_owned()) };
    let tensors = |specs: &[TensorSpec]| specs.iter().map(tensor).collect::<Vec<_>>();
    let ensemble = Ensemble {
        inputs: tensors(&first.inputs),
        outputs: tensors(&first.outputs),
        sources,
        max_batch: 0,
        free_rows: true,
        steps,
        vote: Vec::new(),
    };
    ensemble.ordered(name).map_err(|error| format!("variants: {error}"))
}

fn tensor(spec: &TensorSpec) -> EnsembleTensor {
    let dims = spec.dims.iter().map(|dim| dim.to_wire()).collect();
    EnsembleTensor { name: spec.name.clone(), datatype: spec.datatype, dims }
}

/// Whether two variants have the same tensors.
fn alike(kind: &str, (one, two): (&[TensorSpec], &[TensorSpec]), other: &str) -> Result<(), String> {
    for spec in one {
        let Some(same) = two.iter().find(|same| same.name == spec.name) else {
            return Err(format!("has no {kind} `{}`: expected those of `{other}`", spec.name));
        };
        if same.datatype != spec.datatype || same.dims != spec.dims {
            let show = |spec: &TensorSpec| {
                let dims: Vec<String> = spec.dims.iter().map(|dim| dim.to_wire().to_string()).collect();
                format!("{} [{}]", spec.datatype, dims.join(","))
            };
            let (has, wanted) = (show(same), show(spec));
            return Err(format!("{kind} `{}` is {has}: expected {wanted}, as of `{other}`", spec.name));
        }
    }
    match two.iter().find(|spec| one.iter().all(|known| known.name != spec.name)) {
        Some(more) => Err(format!("has an {kind} `{}` that `{other}` does not have", more.name)),
        None => Ok(()),
    }
}

/// The measured quality of each variant.
///
/// # Errors
/// It was never measured, or of other files than those that are served.
pub(super) fn qualities<'a>(
    variants: impl Iterator<Item = (&'a str, ContentHash)>,
    stored: impl Fn(&str) -> Result<Option<Quality>, String>,
) -> Result<Vec<(ContentHash, Quality)>, String> {
    let read = |(name, hash): (&'a str, ContentHash)| {
        let quality = stored(name)?;
        let quality =
            Quality::of_files((name, hash), quality).map_err(|problem| format!("variants: {problem}"))?;
        Ok((hash, quality))
    };
    variants.map(read).collect()
}

#[cfg(test)]
mod tests {
    use models::Dim;
    use oip::Datatype;

    use super::*;

    fn signature(datatype: Datatype, outputs: &[&str]) -> Signature {
        let spec = |name: &str, datatype, dims: &[Dim]| TensorSpec {
            name: name.to_owned(),
            datatype,
            dims: dims.to_vec(),
            optional: false,
        };
        let output = |name: &&str| spec(name, Datatype::Fp32, &[Dim::Free, Dim::Fixed(10)]);
        Signature {
            inputs: vec![spec("pixels", datatype, &[Dim::Free, Dim::Fixed(64)])],
            outputs: outputs.iter().map(output).collect(),
            max_batch: 8,
        }
    }

    fn of(variants: &str) -> Result<Ensemble, String> {
        let settings: FamilySettings = toml::from_str(&format!("variants = {variants}")).unwrap();
        ensemble("digits", &settings, |model| match model {
            "s" | "m" => Ok(signature(Datatype::Fp32, &["scores"])),
            "half" => Ok(signature(Datatype::Fp16, &["scores"])),
            "more" => Ok(signature(Datatype::Fp32, &["scores", "label"])),
            "none" => Ok(signature(Datatype::Fp32, &["label"])),
            other => Err(format!("model `{other}` is unknown")),
        })
    }

    #[test]
    fn variants_are_steps_that_write_the_same_outputs() {
        let made = of("['s', 'm']").unwrap();
        assert_eq!(made.steps.iter().map(|step| step.model.as_str()).collect::<Vec<_>>(), ["s", "m"]);
        assert_eq!(made.sources["scores"], ["s.scores", "m.scores"]);
        assert_eq!(made.inputs[0].name, "pixels");
    }

    #[test]
    fn variants_that_differ_are_named() {
        for (variants, said) in [
            ("['s', 'x']", "variants: `x`: model `x` is unknown"),
            (
                "['s', 'half']",
                "variants: `half`: input `pixels` is FP16 [-1,64]: expected FP32 [-1,64], as of `s`",
            ),
            ("['s', 'more']", "variants: `more`: has an output `label` that `s` does not have"),
            ("['s', 'none']", "variants: `none`: has no output `scores`: expected those of `s`"),
        ] {
            let error = of(variants).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn the_router_is_told_of_versions_that_changed() {
        let measured =
            [0.9, 0.8].map(|value| (ContentHash::of(b"model"), Quality { value, ..Quality::default() }));
        let family = ServedFamily::new(FamilyId(3), measured.to_vec(), &FamilySettings::default());
        let spec = family.changed(&[Some(ModelId(1)), None], None).unwrap();
        assert_eq!(spec.variants, [Variant { model: ModelId(1), quality: 900_000 }]);
        assert_eq!(family.changed(&[Some(ModelId(1)), None], None), None);
        assert_eq!(family.changed(&[Some(ModelId(1)), Some(ModelId(2))], None).unwrap().variants.len(), 2);
        assert_eq!(family.best(), 0.9);
    }
}
