//! The Rust code of the `.proto` files: it is generated again without `protoc` and compared with the committed code.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use prost::Message as _;
use protox::prost_reflect::prost_types::field_descriptor_proto::Type;
use protox::prost_reflect::prost_types::{DescriptorProto, FileDescriptorSet};

/// The names of the `.proto` files.
const FILES: [&str; 3] = ["centrifugo_api.proto", "centrifugo_proxy.proto", "touchline.proto"];
/// The package with which the node asks backends; the node serves the other packages.
const PROXY: &str = "centrifugal.centrifugo.proxy";
/// If this variable is set, the committed files are written.
const UPDATE: &str = "TOUCHLINE_UPDATE_PROTO";

/// Messages by their full name, with a leading point.
type Messages<'d> = HashMap<String, &'d DescriptorProto>;

/// These messages, and all messages that they contain.
fn reached(messages: &Messages<'_>, roots: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    let (mut found, mut open) = (BTreeSet::new(), roots.into_iter().collect::<Vec<_>>());
    while let Some(name) = open.pop() {
        if let Some(message) = messages.get(&name).filter(|_| found.insert(name.clone())) {
            open.extend(message.field.iter().filter_map(|field| field.type_name.clone()));
        }
    }
    found
}

/// Adds the messages of a file, including those of maps.
fn collect<'d>(within: &str, all: &'d [DescriptorProto], messages: &mut Messages<'d>) {
    for message in all {
        let name = format!("{within}.{}", message.name());
        collect(&name, &message.nested_type, messages);
        messages.insert(name, message);
    }
}

/// The messages that become JSON, and those that are made from JSON.
fn directions(set: &FileDescriptorSet, messages: &Messages<'_>) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for file in &set.file {
        for method in file.service.iter().flat_map(|service| &service.method) {
            let (input, output) = (method.input_type().to_owned(), method.output_type().to_owned());
            if file.package() == PROXY {
                written.push(output);
            } else {
                written.push(input);
                read.push(output);
            }
        }
    }
    (reached(messages, written), reached(messages, read))
}

/// Configures serde for the messages: an empty field is absent, and `bytes` are JSON.
fn configure(config: &mut prost_build::Config, set: &FileDescriptorSet) {
    let mut messages = Messages::new();
    set.file.iter().for_each(|file| collect(&format!(".{}", file.package()), &file.message_type, &mut messages));
    let (written, read) = directions(set, &messages);
    for (name, message) in &messages {
        let (is_written, is_read) = (written.contains(name), read.contains(name));
        if message.options.as_ref().is_some_and(|options| options.map_entry()) {
            continue;
        }
        if is_written {
            config.type_attribute(name, "#[derive(serde::Serialize)]");
        }
        if is_read {
            config.type_attribute(name, "#[derive(serde::Deserialize)] #[serde(default)]");
        }
        if message.name() == "Patterns" {
            config.type_attribute(name, "#[serde(transparent)]");
            continue;
        }
        for field in &message.field {
            let path = format!("{name}.{}", field.name());
            if is_written && field.r#type() == Type::Bytes {
                config.field_attribute(&path, "#[serde(serialize_with = \"crate::proto::json::write\")]");
            }
            if is_written && message.name() != "BoolValue" {
                config.field_attribute(&path, "#[serde(skip_serializing_if = \"crate::proto::json::is_absent\")]");
            }
            if is_read && field.r#type() == Type::Bytes {
                config.field_attribute(&path, "#[serde(deserialize_with = \"crate::proto::json::read\")]");
            }
        }
    }
}

/// Generates the files from the `.proto` files, by name.
fn generate(directory: &Path, out: &Path) {
    let set = protox::compile(FILES, [directory]).expect("the files are good");
    let mut config = prost_build::Config::new();
    config.bytes(["."]).btree_map(["."]).out_dir(out);
    configure(&mut config, &set);
    let mut served = set.clone();
    served.file.retain(|file| file.package() != PROXY);
    served.file.iter_mut().for_each(|file| file.source_code_info = None);
    config.compile_fds(set).expect("Rust is made of them");
    std::fs::write(out.join("descriptors.bin"), served.encode_to_vec()).expect("it can be written");
}

fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = std::fs::read_dir(directory)
        .expect("the directory is there")
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("a file")))
        .collect();
    found.sort();
    found
}

#[test]
fn the_generated_files_are_those_of_the_proto_files() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (protos, committed) = (own.join("../../proto"), own.join("src/proto/generated"));
    if std::env::var_os(UPDATE).is_some() {
        generate(&protos, &committed);
    }
    let out: PathBuf = std::env::temp_dir().join(format!("touchline-proto-{}", std::process::id()));
    std::fs::create_dir_all(&out).expect("a directory can be made");
    generate(&protos, &out);
    let (made, known) = (contents(&out), contents(&committed));
    std::fs::remove_dir_all(&out).expect("nothing is in use any more");
    let names = |all: &[(String, Vec<u8>)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&made), names(&known));
    for ((name, made), (_, known)) in made.iter().zip(&known) {
        assert!(made == known, "{name} is not what the .proto files say: run the test with {UPDATE}=1");
    }
}
