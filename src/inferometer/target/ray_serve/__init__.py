"""An application on Ray Serve: replicas of the simulator, or of vLLM, behind one of Ray's own request routers.

`inferometer.target.engines.ray_serve` launches `python -m inferometer.target.ray_serve`, the driver: it connects to
Ray, or starts it, deploys `app`, and takes everything down again. `recording` records the decisions of Ray's routers.
"""
