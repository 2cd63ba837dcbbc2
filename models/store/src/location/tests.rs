use super::*;

fn parse(url: &str, options: &[(&str, &str)]) -> Result<Location, LocationError> {
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Location::parse(url, &options)
}

#[test]
fn urls_are_parsed() {
    let table = [
        ("s3://bucket", Scheme::S3, "bucket", ""),
        ("s3://bucket/a/b/", Scheme::S3, "bucket", "a/b"),
        ("gs://bucket/models", Scheme::Gcs, "bucket", "models"),
        ("az://container/models", Scheme::Azure, "container", "models"),
        ("abfss://c@account.dfs.core.windows.net/m", Scheme::Azure, "c@account.dfs.core.windows.net", "m"),
        ("https://[::1]:8080/models", Scheme::Http, "[::1]:8080", "models"),
        ("file:///srv/models", Scheme::File, "", "srv/models"),
    ];
    for (url, scheme, authority, prefix) in table {
        let location = parse(url, &[]).unwrap();
        assert_eq!((location.scheme(), location.authority(), location.prefix()), (scheme, authority, prefix));
    }
    assert_eq!(parse("s3://bucket/a/", &[]).unwrap().url(), "s3://bucket/a");
}

/// URL, options, and words of the error.
type Row = (&'static str, &'static [(&'static str, &'static str)], &'static str);

#[test]
fn mistakes_say_what_is_right() {
    let table: [Row; 17] = [
        ("/srv/models", &[], "expected a scheme"),
        ("ftp://host/x", &[], "unknown scheme: expected s3"),
        ("s3:///prefix", &[], "expected a bucket after `s3://`"),
        ("gs://", &[], "expected a bucket"),
        ("az:///x", &[], "expected a container"),
        ("s3://bu cket/x", &[], "expected a bucket of letters"),
        ("s3://bucket/a/../b", &[], "the path has a part `..`"),
        ("s3://bucket/a//b", &[], "the path has an empty part"),
        ("https://host/a?sig=abcdef", &[], "expected no `?`"),
        ("https://user:hunter2@host/a", &[], "expected no credentials"),
        ("http://host/a", &[], "allow_http = true"),
        ("http://host/a", &[("allow_http", "yes")], "expected true or false"),
        ("file://srv/models", &[], "file:///srv/models"),
        ("file:///", &[], "expected a folder below the root"),
        ("s3://bucket", &[("regin", "x")], "`regin`: unknown for this URL: expected for example endpoint"),
        ("s3://bucket", &[("endpoint", "http://user:hunter2@host")], "without credentials"),
        ("file:///srv", &[("region", "x")], "unknown for this URL"),
    ];
    for (url, options, words) in table {
        let error = parse(url, options).unwrap_err().to_string();
        assert!(error.contains(words), "{url}: {error}");
        assert!(!error.contains("hunter2") && !error.contains("abcdef"), "{error}");
    }
}

#[test]
fn credentials_are_not_shown() {
    let location =
        parse("s3://bucket", &[("secret_access_key", "hunter2"), ("region", "eu-west-1")]).unwrap();
    let shown = format!("{location:?} {location}");
    assert!(shown.contains("eu-west-1") && shown.contains("***") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_url_is_not_a_path() {
    for url in ["s3://x", "file:///x", "foo://"] {
        assert!(Location::is_url(url));
    }
    for path in ["/srv/models", "models", "://x", "a b://x", "C:/x"] {
        assert!(!Location::is_url(path));
    }
}
