"""Who may import whom: the arrows between packages, and the order of the rooms inside each.

tests/tidy/test_arrows.py compares both with the code. tests/tidy/picture.py draws the picture of
README.md and docs/architecture.md from ARROWS.
"""

#: What each package imports, beside itself: neither more nor less. The ground comes first.
ARROWS: dict[str, tuple[str, ...]] = {
    "base": (),
    "records": ("base",),
    "remoting": ("base",),
    "io_backends": ("base",),
    "engine": ("base", "records", "io_backends"),
    "lake": ("base", "records", "engine"),
    "namesrv": ("base", "remoting"),
    "client": ("base", "records", "remoting"),
    "broker": ("base", "records", "remoting", "engine"),
    "congreve": (
        "base",
        "records",
        "remoting",
        "engine",
        "lake",
        "namesrv",
        "client",
        "broker",
    ),
    "spark": ("base", "records", "engine", "lake", "client", "congreve"),
    "console": (
        "base",
        "records",
        "remoting",
        "io_backends",
        "engine",
        "lake",
        "client",
        "broker",
        "congreve",
    ),
}

#: In a few words, for the picture.
JOBS = {
    "records": "what a message is",
    "remoting": "frames, connections",
    "io_backends": "bytes to disk",
    "engine": "log, queues, index",
    "lake": "topics as tables",
    "namesrv": "routes",
    "client": "producers, consumers",
    "broker": "requests, groups, delays",
    "congreve": "serve, open_store",
    "spark": "source and sink",
    "console": "the command",
}

_ROOMS = {
    "base": """
        atomic byte_buffer byte_size clock cursor errors extras fields forks limited_log
        numbers properties pthread settings slices steps text_or_base64 version
        table_limit
        """,
    "records": """
        byte_compare checksum errors inflate layout
        byte_table host message
        packed_host record
        batches filter restore
        columns
        """,
    "remoting": """
        errors loop signatures wire
        messages tls
        lanes
        http2 transport
        """,
    "io_backends": """
        errors limits page
        bus_error write_group
        disk mapping window
        backend
        files mapped measure pages pool uring
        fault probe
        backends
        """,
    "engine": """
        errors file_sizes format health results rounds
        config pop queue
        log retention
        lite read state
        backends exported_queues recovery
        index scrub table_retention timer
        housekeeping readable_store
        writable_store
        store
        replication
        store_files
        rebuild
        """,
    "lake": """
        errors data_files
        column_types data_file_writer durable progress queue_batches
        commit_files continuity
        table
        bodies export row_groups status upkeep
        follow restore table_archive
        """,
    "namesrv": """
        errors
        config
        kvconfig topics routes
        broker_processor route_processor settings_processor
        server
        """,
    "client": """
        ids logs namespace results user_code
        errors
        compression receipt
        received_json
        received
        message
        checks outgoing
        hooks subscription transport
        producer pull
        observability settings
        consumer admin
        share
        """,
    "broker": """
        errors after_repair coalesced foreign_keys ha_frames setting_types
        error_responses listeners log_levels quota_limits
        config_parts
        config
        broker_conf metadata processes quotas reachable tls
        figures
        requests
        commit group
        accounts delay
        transaction
        send pull.lanes
        pop.lanes
        pull
        pop
        lite
        managers
        serving
        repair
        grpc.codecs
        grpc.protocol
        grpc replication
        hand_over
        admin metrics registration
        assembly
        broker
        election pair
        """,
    "congreve": """
        archive name_server store_reader table_archive
        node
        pytest_plugin
        """,
    "spark": """
        errors retry
        offsets
        options
        schema sink
        rows
        sources
        planning
        admission pushdown table_and_live
        batch
        snapshot stream
        source union
        session
        demo
        """,
    "console": """
        flights loadgen option_types report store_backup topic_kinds
        accounts contexts daemon doctor lake settings store top tune web
        connection demo quota web.views
        bench bundle cluster replication web.serving
        main
        """,
}

#: The rooms of each package, from the ground up. A room imports only rooms that come before it;
#: those of one line do not need each other.
ORDER: dict[str, tuple[str, ...]] = {
    package: tuple(text.split()) for package, text in _ROOMS.items()
}
