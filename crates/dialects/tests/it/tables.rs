//! What holds for every row of every table.

use helve_dialects::all;

#[test]
fn every_schema_compiles_and_every_name_is_good_on_the_wire() {
    for dialect in all() {
        for tool in &dialect.tools {
            let spec = &tool.spec;
            let name = format!("{}.{}", dialect.name, spec.name);
            jsonschema::validator_for(&spec.input_schema).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(spec.input_schema["type"], "object", "{name}");
            assert!(spec.input_schema["properties"].is_object(), "{name} does not list its properties");
            assert!(spec.input_schema.get("$defs").is_none(), "{name} has references");
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
    let listed = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        names("solo"),
        listed(
            "read write edit apply_patch grep glob ls exec process cron message agents_list sessions_list sessions_history
            sessions_send sessions_spawn subagents sessions_status memory_search memory_get"
        )
    );
    assert_eq!(
        names("forge"),
        listed(
            "read write edit bash plan_read plan_write plan_edit plan_bash web_search web_fetch create_spec create_task
            set_dag spawn_agent emit_walkthrough add_subtask read_subtasks merge_branches run_tests fix_conflict emit_cr
            read_spec read_task read_dag read_walkthrough mark_task_status prepare_branch"
        )
    );
    assert_eq!(names("preset"), listed("read bash edit write grep find ls web_search web_fetch"));
    assert_eq!(
        names("oxydra"),
        listed(
            "file_read file_search file_list file_write file_edit file_delete attachment_save web_fetch web_search
            vault_copyto send_media delegate_to_agent shell_exec memory_search memory_save memory_update memory_delete
            scratchpad_read scratchpad_write scratchpad_clear schedule_create schedule_search schedule_edit
            schedule_delete schedule_runs schedule_run_output"
        )
    );
    // With the two tools for resources of MCP servers and the servers' own tools there are nineteen.
    assert_eq!(
        names("claude"),
        listed(
            "Agent Bash TaskOutput ExitPlanMode FileEdit FileRead FileWrite Glob Grep TaskStop NotebookEdit TodoWrite
            WebFetch WebSearch AskUserQuestion Config"
        )
    );
}

/// `required`, in the order of the seeds.
#[test]
fn what_each_tool_requires() {
    let rows: Vec<String> = all()
        .iter()
        .flat_map(|dialect| {
            dialect.tools.iter().map(move |tool| {
                let required = tool.spec.input_schema["required"].as_array().cloned().unwrap_or_default();
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
solo.cron(action)
solo.message(to, content)
solo.agents_list()
solo.sessions_list()
solo.sessions_history(session_id)
solo.sessions_send(session_id, content)
solo.sessions_spawn(prompt)
solo.subagents()
solo.sessions_status()
solo.memory_search(query)
solo.memory_get(path)
forge.read(path)
forge.write(path, content)
forge.edit(path, oldStr, newStr)
forge.bash(command)
forge.plan_read(path)
forge.plan_write(path, content)
forge.plan_edit(path, oldStr, newStr)
forge.plan_bash(command)
forge.web_search(query)
forge.web_fetch(url)
forge.create_spec(filename, content)
forge.create_task(taskId, content)
forge.set_dag(dag)
forge.spawn_agent(type, taskId)
forge.emit_walkthrough(walkthrough)
forge.add_subtask(title, description)
forge.read_subtasks()
forge.merge_branches(sourceBranches, targetBranch)
forge.run_tests()
forge.fix_conflict(conflictFiles, sourceBranch, targetBranch)
forge.emit_cr(title, description, reason)
forge.read_spec(filename)
forge.read_task(taskId)
forge.read_dag()
forge.read_walkthrough(taskId)
forge.mark_task_status(taskId, status)
forge.prepare_branch(taskId, attemptId)
preset.read(path)
preset.bash(command)
preset.edit(path, old_text, new_text)
preset.write(path, content)
preset.grep(pattern)
preset.find()
preset.ls()
preset.web_search(query)
preset.web_fetch(url)
oxydra.file_read(path)
oxydra.file_search(path, query)
oxydra.file_list()
oxydra.file_write(path, content)
oxydra.file_edit(path, old_text, new_text)
oxydra.file_delete(path)
oxydra.attachment_save(index, path)
oxydra.web_fetch(url)
oxydra.web_search(query)
oxydra.vault_copyto(source_path, destination_path)
oxydra.send_media(path, media_type)
oxydra.delegate_to_agent(agent_name, goal)
oxydra.shell_exec(command)
oxydra.memory_search(query)
oxydra.memory_save(content)
oxydra.memory_update(note_id, content)
oxydra.memory_delete(note_id)
oxydra.scratchpad_read()
oxydra.scratchpad_write(items)
oxydra.scratchpad_clear()
oxydra.schedule_create(goal, cadence_type, cadence_value)
oxydra.schedule_search()
oxydra.schedule_edit(schedule_id)
oxydra.schedule_delete(schedule_id)
oxydra.schedule_runs(schedule_id)
oxydra.schedule_run_output(run_id)
claude.Agent(description, prompt, subagent_type)
claude.Bash(command)
claude.TaskOutput(task_id)
claude.ExitPlanMode()
claude.FileEdit(file_path, old_string, new_string)
claude.FileRead(file_path)
claude.FileWrite(file_path, content)
claude.Glob(pattern)
claude.Grep(pattern)
claude.TaskStop()
claude.NotebookEdit(notebook_path, new_source)
claude.TodoWrite(todos)
claude.WebFetch(url, prompt)
claude.WebSearch(query)
claude.AskUserQuestion(questions)
claude.Config(setting)"
    );
}

/// Limits of the seed stand in the schemas, where a model sees them.
#[test]
fn limits_stand_in_the_schemas() {
    let schema = |tool: &str, field: &str| {
        let oxydra = helve_dialects::oxydra();
        let tool = oxydra.tools.iter().find(|it| it.spec.name == tool).unwrap();
        tool.spec.input_schema["properties"][field].clone()
    };
    let items = schema("scratchpad_write", "items");
    assert_eq!(
        (&items["minItems"], &items["maxItems"], &items["items"]["maxLength"]),
        (&1.into(), &32.into(), &240.into())
    );
    for (tool, field) in [("memory_search", "top_k"), ("schedule_runs", "limit")] {
        let number = schema(tool, field);
        assert_eq!((number["minimum"].as_f64(), number["maximum"].as_f64()), (Some(1.0), Some(20.0)), "{tool}.{field}");
    }
}

/// What a run may use is the operator's decision.
#[test]
fn the_limits_of_a_scheduled_run_are_no_parameters() {
    let oxydra = helve_dialects::oxydra();
    for tool in ["schedule_create", "schedule_edit"] {
        let spec = &oxydra.tools.iter().find(|it| it.spec.name == tool).unwrap().spec;
        let fields: Vec<&String> = spec.input_schema["properties"].as_object().unwrap().keys().collect();
        assert!(!fields.iter().any(|it| it.starts_with("max_") || it.contains("cost")), "{tool}: {fields:?}");
    }
}

#[test]
fn preset_is_coding_when_nothing_else_is_chosen() {
    let engine = helve_engine::Engine::builder(helve_dialects::preset()).build().unwrap();
    let names: Vec<String> = engine.specs().map(|spec| spec.name.clone()).collect();
    assert_eq!(names, ["read", "bash", "edit", "write"]);
}

#[test]
fn searches_of_memory_show_only_the_parameters_of_their_seed() {
    for (dialect, fields) in [
        ("solo", vec!["query", "max_results", "min_score"]),
        ("oxydra", vec!["query", "top_k", "include_conversation", "tags"]),
    ] {
        let dialect = helve_dialects::by_name(dialect).unwrap();
        let tool = dialect.tools.iter().find(|it| it.spec.name == "memory_search").unwrap();
        assert_eq!(tool.spec.input_schema["properties"].as_object().unwrap().keys().collect::<Vec<_>>(), fields);
    }
}

/// The seed's sub-agent has six tools, whatever is imported.
#[test]
fn a_sub_agent_of_solo_has_exactly_six_tools() {
    let extra = helve_dialects::preset().tools.swap_remove(0).map_spec(|spec| spec.name = "get_weather".into());
    let engine = helve_engine::Engine::builder(helve_dialects::solo()).role("sub").tool(extra).build().unwrap();
    let names: Vec<String> = engine.specs().map(|spec| spec.name.clone()).collect();
    assert_eq!(names, ["read", "grep", "glob", "ls", "memory_search", "memory_get"]);
}

/// The profile of every row of `oxydra` that reaches files or the web.
#[test]
fn profiles_of_oxydra() {
    let rows: Vec<String> = helve_dialects::oxydra()
        .tools
        .iter()
        .filter_map(|tool| tool.spec.profile.map(|profile| format!("{} {profile}", tool.spec.name)))
        .collect();
    assert_eq!(
        rows,
        [
            "file_read FileReadOnly",
            "file_search FileReadOnly",
            "file_list FileReadOnly",
            "file_write FileReadWrite",
            "file_edit FileReadWrite",
            "file_delete FileReadWrite",
            "attachment_save FileReadWrite",
            "web_fetch Web",
            "web_search Web",
            "send_media FileReadOnly",
        ]
    );
}
