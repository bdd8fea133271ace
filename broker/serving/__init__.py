"""The roof of all compiled paths: what a lane does with the frames of a chunk."""
