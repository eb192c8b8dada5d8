-- Ends deliveries. Returns for each 1, or 0 if it is no longer held.
return finish(1)
