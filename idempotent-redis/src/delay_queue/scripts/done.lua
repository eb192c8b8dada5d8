-- Ends deliveries for good. Of each 1, or 0 if it is not this delivery's any more.
return finish(1)
