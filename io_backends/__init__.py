"""Where appended bytes live and how they become durable: mapped files now, pool and io_uring later."""
