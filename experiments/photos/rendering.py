"""Photos of textured planes by pinhole cameras: scenes whose geometry is known exactly."""

from dataclasses import dataclass

import numpy as np

from matchkernel.data.synthetic import sample_linear


@dataclass(frozen=True)
class Plane:
    """A textured parallelogram: corner + a u + b v with a and b from 0 to 1."""

    corner: np.ndarray
    u: np.ndarray
    v: np.ndarray
    texture: np.ndarray  # (H, W) or (H, W, 3); the columns run along u, the rows along v

    @property
    def normal(self) -> np.ndarray:
        """(3,) unit vector."""
        across = np.cross(self.u, self.v)
        return across / np.linalg.norm(across)


@dataclass(frozen=True)
class View:
    """A pinhole camera: x_camera = R X + t; the centre of the first pixel is (0, 0)."""

    R: np.ndarray
    t: np.ndarray
    focal: float
    width: int
    height: int

    @property
    def middle(self) -> np.ndarray:
        """(2,) the principal point."""
        return np.array([self.width - 1, self.height - 1]) / 2

    @property
    def centre(self) -> np.ndarray:
        """(3,) position of the camera in the scene."""
        return -self.R.T @ self.t

    def rays(self, places: np.ndarray) -> np.ndarray:
        """(K, 3) directions in the scene, of depth 1, through pixels (K, 2)."""
        return np.column_stack([(places - self.middle) / self.focal, np.ones(len(places))]) @ self.R

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(K, 2) pixels and (K,) depths of points (K, 3); pixels mean nothing where the depth is not positive."""
        seen = points @ self.R.T + self.t
        depths = seen[:, 2]
        return self.focal * seen[:, :2] / np.where(depths > 0, depths, 1)[:, None] + self.middle, depths


@dataclass(frozen=True)
class Hits:
    """Where K rays first meet a plane."""

    depths: np.ndarray  # (K,) infinite where a ray meets none
    planes: np.ndarray  # (K,) index of the plane, -1 where none
    uv: np.ndarray  # (K, 2) position on the plane, 0 to 1


def hits(planes: list[Plane], origin: np.ndarray, rays: np.ndarray) -> Hits:
    """The nearest plane along each of the rays (K, 3) that start at `origin`."""
    depths, index, uv = np.full(len(rays), np.inf), np.full(len(rays), -1), np.zeros((len(rays), 2))
    for number, plane in enumerate(planes):
        normal = np.cross(plane.u, plane.v)
        with np.errstate(divide="ignore", invalid="ignore"):
            depth = ((plane.corner - origin) @ normal) / (rays @ normal)
        near = np.flatnonzero((depth > 1e-6) & (depth < depths))
        across = _dual(plane.u, plane.v)
        at = (origin - plane.corner) @ across + (rays[near] @ across) * depth[near][:, None]
        inside = (at >= 0).all(1) & (at <= 1).all(1)
        here = near[inside]
        depths[here], index[here], uv[here] = depth[here], number, at[inside]
    return Hits(depths, index, uv)


def _dual(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """(3, 2) what a vector of the plane is multiplied by to give its shares of u and v."""
    return np.linalg.pinv(np.column_stack([u, v])).T


def intersect(planes: list[Plane], origin: np.ndarray, rays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where rays first meet a plane: (K, 3) places, NaN where none, and (K,) gray values, 128 where none."""
    found = hits(planes, origin, rays)
    gray = np.full(len(rays), 128.0)
    for number, plane in enumerate(planes):
        here = found.planes == number
        height, width = plane.texture.shape
        gray[here] = sample_linear(plane.texture, *(found.uv[here] * [width - 1, height - 1]).T)
    met = found.planes >= 0
    places = origin + rays * np.where(met, found.depths, 0)[:, None]
    return np.where(met[:, None], places, np.nan), gray


def photograph(planes: list[Plane], view: View, random: np.random.Generator) -> np.ndarray:
    """(H, W) uint8 gray photo, each pixel the mean of 2 x 2 rays, with its own exposure and a little noise."""
    total = np.zeros(view.width * view.height)
    for places in sub_pixels(view, 2):
        total += intersect(planes, view.centre, view.rays(places))[1] / 4
    exposed = total * random.uniform(0.8, 1.15) + random.uniform(-10, 10) + random.normal(0, 1.5, total.shape)
    return np.clip(np.round(exposed), 0, 255).astype(np.uint8).reshape(view.height, view.width)


def sub_pixels(view: View, count: int) -> list[np.ndarray]:
    """count² arrays (H W, 2), each with one place of every pixel."""
    y, x = np.mgrid[: view.height, : view.width]
    offsets = (np.arange(count) + 0.5) / count - 0.5
    return [np.column_stack([x.ravel() + dx, y.ravel() + dy]) for dx in offsets for dy in offsets]


def turn(axis: int, angle: float) -> np.ndarray:
    """(3, 3) rotation by an angle in radians about axis 0, 1 or 2."""
    i, j = [(1, 2), (2, 0), (0, 1)][axis]
    R = np.eye(3)
    R[i, i] = R[j, j] = np.cos(angle)
    R[i, j], R[j, i] = -np.sin(angle), np.sin(angle)
    return R


def quaternion(R: np.ndarray) -> np.ndarray:
    """(4,) w, x, y, z of a rotation, computed from its largest component."""
    x, y, z = np.diag(R)
    squares = np.array([1 + x + y + z, 1 + x - y - z, 1 - x + y - z, 1 - x - y + z]) / 4
    wx, wy, wz = R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]
    xy, xz, yz = R[0, 1] + R[1, 0], R[0, 2] + R[2, 0], R[1, 2] + R[2, 1]
    products = np.array([[0, wx, wy, wz], [wx, 0, xy, xz], [wy, xy, 0, yz], [wz, xz, yz, 0]]) / 4
    k = int(squares.argmax())
    largest = np.sqrt(squares[k])
    row = products[k] / largest
    row[k] = largest
    return row
