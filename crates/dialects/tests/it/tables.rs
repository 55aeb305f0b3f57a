//! What holds for every row of every table.

use helve_dialects::all;

#[test]
fn every_schema_compiles_and_every_name_is_good_on_the_wire() {
    for dialect in all() {
        for tool in &dialect.tools {
            let spec = &tool.spec;
            let name = format!("{}.{}", dialect.name, spec.name);
            jsonschema::validator_for(&spec.schema).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(spec.schema["type"], "object", "{name}");
            assert!(spec.schema.get("$defs").is_none(), "{name} has references");
            assert!(
                spec.name.len() <= 64 && spec.name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_'),
                "{name}"
            );
            assert!(!spec.description.is_empty(), "{name} has no description");
        }
    }
}

#[test]
fn the_names_of_the_seeds() {
    let names = |dialect: &str| -> Vec<String> {
        let dialect = helve_dialects::by_name(dialect).unwrap();
        dialect.tools.iter().map(|tool| tool.spec.name.clone()).collect()
    };
    assert_eq!(
        names("solo"),
        [
            "read",
            "write",
            "edit",
            "apply_patch",
            "grep",
            "glob",
            "ls",
            "exec",
            "process",
            "agents_list",
            "sessions_list",
            "sessions_history",
            "sessions_send",
            "sessions_spawn",
            "subagents",
            "sessions_status",
        ]
    );
    assert_eq!(names("forge"), ["read", "write", "edit", "bash"]);
    assert_eq!(names("preset"), ["read", "bash", "edit", "write", "grep", "find", "ls"]);
    assert_eq!(
        names("oxydra"),
        ["file_read", "file_search", "file_list", "file_write", "file_edit", "file_delete", "shell_exec"]
    );
    assert_eq!(
        names("claude"),
        ["Bash", "TaskOutput", "FileEdit", "FileRead", "FileWrite", "Glob", "Grep", "TaskStop", "NotebookEdit"]
    );
}

/// `required`, in the order of the seeds.
#[test]
fn what_each_tool_requires() {
    let rows: Vec<String> = all()
        .iter()
        .flat_map(|dialect| {
            dialect.tools.iter().map(move |tool| {
                let required = tool.spec.schema["required"].as_array().cloned().unwrap_or_default();
                let required: Vec<_> = required.iter().filter_map(|it| it.as_str()).collect();
                format!("{}.{}({})", dialect.name, tool.spec.name, required.join(", "))
            })
        })
        .collect();
    assert_eq!(
        rows.join("\n"),
        "\
solo.read(path)
solo.write(path, content)
solo.edit(path, old_text, new_text)
solo.apply_patch(patch)
solo.grep(pattern)
solo.glob(pattern)
solo.ls(path)
solo.exec(command)
solo.process(action, process_id)
solo.agents_list()
solo.sessions_list()
solo.sessions_history(session_id)
solo.sessions_send(session_id, content)
solo.sessions_spawn(prompt)
solo.subagents()
solo.sessions_status()
forge.read(path)
forge.write(path, content)
forge.edit(path, oldStr, newStr)
forge.bash(command)
preset.read(path)
preset.bash(command)
preset.edit(path, old_text, new_text)
preset.write(path, content)
preset.grep(pattern)
preset.find()
preset.ls()
oxydra.file_read(path)
oxydra.file_search(path, query)
oxydra.file_list()
oxydra.file_write(path, content)
oxydra.file_edit(path, old_text, new_text)
oxydra.file_delete(path)
oxydra.shell_exec(command)
claude.Bash(command)
claude.TaskOutput(task_id)
claude.FileEdit(file_path, old_string, new_string)
claude.FileRead(file_path)
claude.FileWrite(file_path, content)
claude.Glob(pattern)
claude.Grep(pattern)
claude.TaskStop()
claude.NotebookEdit(notebook_path, new_source)"
    );
}
