#![allow(
    clippy::all,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]
use models::engine::*;
use models::*;
use std::time::Instant;
fn main() {
    let a: Vec<String> = std::env::args().skip(1).collect();
    let bytes = std::fs::read(&a[0]).unwrap();
    let files = ModelFiles::from_bytes(ModelName::new("m").unwrap(), Version(1), Format::Onnx, bytes);
    let env = ort::Environment {
        path: std::env::var_os("PATH"),
        virtual_env: Some("/tmp/py/venv".into()),
        ort_dylib_path: None,
    };
    let loader = Loader::new(ort::discover(None, &env));
    let cycles: usize = a[1].parse().unwrap();
    let rss = || {
        let s = std::fs::read_to_string("/proc/self/status").unwrap();
        s.lines().find(|l| l.starts_with("VmRSS")).unwrap().to_string()
    };
    for e in ["tract", "ort"] {
        let o = LoadOptions { engine: e.parse().unwrap(), ..Default::default() };
        println!("{e} start {}", rss());
        for c in 0..cycles {
            let Ok(mut s) = loader.load(&files, &o) else {
                println!("no");
                break;
            };
            let sig = s.signature().clone();
            let cfg = EffectiveConfig::resolve(&files.name, None, &ModelSettings::default(), &sig).unwrap();
            let p = warm_and_profile(s.as_mut(), &cfg).unwrap();
            if c == 0 {
                println!("{e} {p:?}");
                let inputs = sig
                    .inputs
                    .iter()
                    .map(|i| {
                        let shape: Vec<u64> = i
                            .dims
                            .iter()
                            .map(|d| match d {
                                Dim::Fixed(e) => *e,
                                Dim::Free => 1,
                            })
                            .collect();
                        let n: u64 = shape.iter().product();
                        Some(oip::Tensor {
                            name: i.name.clone(),
                            datatype: i.datatype,
                            shape: oip::Shape::from_extents(&shape),
                            data: vec![0u8; n as usize * i.datatype.size().unwrap()].into(),
                        })
                    })
                    .collect();
                let b = Batch { inputs, rows: 1 };
                if s.run(&b).is_ok() {
                    let t = Instant::now();
                    let mut n = 0;
                    while t.elapsed().as_millis() < 500 {
                        s.run(&b).unwrap();
                        n += 1;
                    }
                    println!("{e} {:?} a run", t.elapsed() / n);
                }
                println!("{e} loaded {}", rss());
            }
            drop(s);
            release_unused_memory();
            if c % 5 == 0 || c + 1 == cycles {
                println!("{e} cycle {c} {}", rss());
            }
        }
    }
}
