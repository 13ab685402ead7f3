"""Run one side (device or cloud) as a process: connections, answers, model thread, documents."""
