//! Which models are of one family, and are therefore left out of the known models together.

/// Family of a model of the public tables: networks of one paper. Its name without its depth.
pub fn family_of_network(model: &str) -> &'static str {
    const FAMILIES: [&str; 8] =
        ["alexnet", "ssd", "vgg", "resnet", "densenet", "inception", "mobilenet", "squeezenet"];
    FAMILIES.into_iter().find(|family| model.starts_with(family)).unwrap_or("other")
}

/// Families of the zoo, with the beginnings of the names of their models. A model and its copy with a free batch (`_batched`) begin alike.
/// `zfnet512` is AlexNet with other widths and kernels. Those of one program (MTCNN, RapidOCR, Silero) were designed together.
const ZOO: [Family; 12] = [
    Family { name: "alexnet", models: &["bvlc_alexnet", "zfnet512"], is_for_choices: true },
    Family { name: "densenet", models: &["densenet121"], is_for_choices: false },
    Family { name: "inception", models: &["inception_v1", "inception_v2"], is_for_choices: true },
    Family { name: "magika", models: &["magika"], is_for_choices: false },
    Family { name: "minilm", models: &["minilm_int8"], is_for_choices: true },
    Family { name: "mtcnn", models: &["mtcnn_onet", "mtcnn_pnet", "mtcnn_rnet"], is_for_choices: true },
    Family {
        name: "rapidocr",
        models: &["rapidocr_cls", "rapidocr_det", "rapidocr_rec"],
        is_for_choices: false,
    },
    Family { name: "resnet", models: &["resnet50"], is_for_choices: true },
    Family { name: "shufflenet", models: &["shufflenet"], is_for_choices: false },
    Family { name: "silero", models: &["silero_vad"], is_for_choices: true },
    Family { name: "squeezenet", models: &["squeezenet"], is_for_choices: false },
    Family { name: "vgg", models: &["vgg19"], is_for_choices: false },
];

struct Family {
    name: &'static str,
    /// Beginnings of the names of its models.
    models: &'static [&'static str],
    /// Whether changes of the estimator may be chosen by its errors. Those of the others are only reported.
    is_for_choices: bool,
}

/// Family of a model of the zoo.
pub fn family_of_zoo(model: &str) -> Option<&'static str> {
    let is_of = |family: &&Family| family.models.iter().any(|begin| model.starts_with(begin));
    ZOO.iter().find(is_of).map(|family| family.name)
}

/// Whether changes of the estimator may be chosen by the errors of a family of the zoo.
pub fn is_for_choices(family: &str) -> bool {
    ZOO.iter().any(|known| known.name == family && known.is_for_choices)
}
